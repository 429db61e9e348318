//! A container that floods the sidecar with slow packets.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use crate::support::{
    line::Line,
    player::{self, Player},
    sidecar::Sidecar,
    surroundings::{alone, patience, skip, virtual_machine, wait_for},
    tree::Tree,
};

/// A process that reads its packets late.
pub const ROLE: &str = "late";
/// Packets of the victim, with the pauses between them: fewer than its part of the budget.
const PACKETS: usize = 50;
const PAUSE: u64 = 170;
/// The wait of a packet of the victim and of the flood, in milliseconds. Both exceed the least threshold.
const WAITS: [u64; 2] = [25, 60];
const BUDGET: u32 = 20;
const LOST: &str = "undercurrent.lost";
const OVER_BUDGET: [(&str, &str); 1] = [("undercurrent.reason", "over_budget")];

/// Sends packets to itself and reads them late. A request has the number of threads, the milliseconds until a read and from it to the next
/// packet, and the number of packets of each thread. Replies at once if that number is zero: the threads then do not end.
pub fn play() {
    player::serve(|request| {
        let numbers: Vec<u64> = request.split(' ').map(|number| number.parse().unwrap()).collect();
        let [threads, wait, pause, packets] = numbers[..] else { panic!("{request}") };
        let late = move || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.set_nodelay(true).unwrap();
            let mut sent = 0;
            while packets == 0 || sent < packets {
                client.write_all(&[0x55; 100]).unwrap();
                thread::sleep(Duration::from_millis(wait));
                server.read_exact(&mut [0; 100]).unwrap();
                thread::sleep(Duration::from_millis(pause));
                sent += 1;
            }
        };
        let running: Vec<_> = (0..threads).map(|_| thread::spawn(late)).collect();
        if packets > 0 {
            running.into_iter().for_each(|thread| thread.join().unwrap());
        }
        request.to_owned()
    });
}

fn over_budget(line: &Line, tree: &Tree, cgroup: &str) -> f64 {
    let lost = line.find(LOST, &OVER_BUDGET).filter(|point| tree.is(point, cgroup));
    lost.fold(0.0, |sum, point| sum + point.amount())
}

/// Returns the number of root spans of a cgroup.
fn spans(sidecar: &Sidecar, tree: &Tree, cgroup: &str) -> usize {
    let of = tree.path(cgroup);
    let is_of = |path: &String| of.as_os_str() == path.as_str();
    let spans = sidecar.spans();
    let of_cgroup = spans.iter().filter(|span| span.resource.get("undercurrent.workload.cgroup").is_some_and(is_of));
    of_cgroup.filter(|span| span.name == "network receive").count()
}

/// Checks that the spans of a workload are complete beside a flood of another workload.
fn keeps_its_spans(threshold: &str) {
    let test = format!("a flood of slow packets, threshold: {threshold}");
    let Some(_alone) = alone(&test) else { return };
    if virtual_machine().is_some() {
        return skip(&format!("{test}: an emulated processor is slower than the waits"));
    }
    let Some(tree) = Tree::create(&test) else { return };
    let settings = format!("threshold: {threshold}, minimum: 10ms, budget: {BUDGET}, uniform_share: none");
    // The 99.9th percentile needs a thousand packets in an interval.
    let configuration = format!("signals: {{slow_packets: {{{settings}}}}}\n");
    let file = crate::support::sidecar::file(&configuration);
    let sidecar = Sidecar::start_with("1s", &["--config", file.path().to_str().unwrap()], &[]);
    let [flood, victim] = ["flood.service", "victim.service"];
    let mut flooding = Player::start(ROLE, &tree.make(flood), &[]);
    let mut late = Player::start(ROLE, &tree.make(victim), &[]);
    // About 4000 packets a second.
    flooding.ask(&format!("256 {} 0 0", WAITS[1]));
    let last = wait_for("losses of the flood", patience(Duration::from_secs(10)), || {
        Some(sidecar.snapshot()).filter(|line| line.total(LOST, &OVER_BUDGET) > 1000.0)
    });
    assert_eq!(over_budget(&last, &tree, victim), 0.0);
    late.ask(&format!("1 {} {PAUSE} {PACKETS}", WAITS[0]));
    let (kept, of_flood) = (spans(&sidecar, &tree, victim), spans(&sidecar, &tree, flood));
    let line = sidecar.snapshot();
    let (lost, of_others) = (over_budget(&line, &tree, victim), over_budget(&line, &tree, flood));
    eprintln!(
        "{threshold}: {kept} of {PACKETS} spans, {lost} lost; the flood has {of_flood} spans and lost {of_others}"
    );
    // The owner of a new socket is known from its first read on.
    assert!(kept >= PACKETS - 2 && kept as f64 + lost >= (PACKETS - 2) as f64, "{kept} spans, {lost} lost");
    assert!(of_flood > 0 && of_others > 1000.0, "the flood has {of_flood} spans and lost {of_others}");
    sidecar.stop();
}

#[test]
fn a_flood_of_slow_packets_leaves_the_spans_of_others_with_a_fixed_threshold() {
    keeps_its_spans("10ms");
}

#[test]
fn a_flood_of_slow_packets_leaves_the_spans_of_others_with_the_adaptive_threshold() {
    keeps_its_spans("adaptive");
}
