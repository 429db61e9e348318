//! CPU time of the receive softirq, charged to the workloads that receive the packets.

use std::{
    net::UdpSocket,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use super::{
    super::support::{
        cgroups::{Burner, Group},
        line::{Line, Point},
        sidecar::Sidecar,
        surroundings::{cpus, on_first_cpu, on_one_cpu, pin, skip, virtual_machine},
        truth::{exactly, record},
        wire::{Version, Wire},
    },
    client::Client,
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::is,
    worker::Worker,
};

const CPU_TIME: &str = "undercurrent.network.cpu.time";
const RECEIVE: (&str, &str) = ("undercurrent.network.event", "receive_softirq");
/// Rounds of a comparison. The hypervisor may stop the CPU during a round, so medians are compared.
const ROUNDS: usize = 7;
/// Pairs of rounds with and without a flood.
const FLOODED_ROUNDS: usize = 15;
/// Requests to each server in a round.
fn requests() -> usize {
    if virtual_machine().is_some() { 60 } else { 200 }
}

/// Servers, and so requests, of the first workload for each one of the second.
const RATIO: usize = 10;

/// Returns the time of the receive softirq in points that satisfy a condition, in seconds.
fn time(line: &Line, whose: impl Fn(&Point) -> bool) -> f64 {
    line.find(CPU_TIME, &[RECEIVE]).filter(|point| whose(point)).map(Point::amount).sum()
}

/// Returns the time charged to a cgroup between two snapshots.
fn charged([before, after]: &[Line; 2], group: &Group) -> f64 {
    time(after, |point| is(point, &group.path)) - time(before, |point| is(point, &group.path))
}

/// Returns the value that is greater than `1 / parts` of the values.
fn quantile(mut values: Vec<f64>, parts: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / parts]
}

/// Starts a process that keeps the CPU of [`on_one_cpu`] busy.
pub fn burn(group: &Group) -> Burner {
    thread::scope(|scope| {
        let burn = || {
            on_one_cpu();
            group.burn(&group.path).unwrap()
        };
        scope.spawn(burn).join().unwrap()
    })
}

/// Runs a load between two snapshots.
fn between(sidecar: &Sidecar, load: impl FnOnce()) -> [Line; 2] {
    let before = sidecar.snapshot();
    load();
    [before, sidecar.snapshot()]
}

/// A worker with a socket, and a client of it.
pub struct Server {
    worker: Worker,
    socket: usize,
    client: Client,
}

impl Server {
    /// Starts a server of datagrams in a cgroup.
    pub fn start(group: &Group, wire: &Wire) -> Self {
        let worker = Worker::start(&group.own(), &wire.right);
        let (socket, address) = worker.bind(Transport::Udp, wire.server());
        Self { worker, socket, client: Client::connect(wire, Transport::Udp, address) }
    }

    /// Sends a request without waiting for a reply.
    pub fn send(&self) {
        self.client.say();
    }

    /// Sends the requests of a round.
    pub fn ask(&self) {
        self.client.ask(requests());
    }
}

/// Lets every server answer the requests of a round, while `meanwhile` runs.
pub fn answer(servers: &[Server], meanwhile: &mut dyn FnMut()) {
    match servers {
        [] => meanwhile(),
        [first, rest @ ..] => first.worker.answers(first.socket, requests(), || answer(rest, meanwhile)),
    }
}

fn proportional(scene: &Scene) {
    let groups = [scene.group(), scene.group(), scene.group()];
    let [many, few, burning] = &groups;
    let sidecar = scene.sidecar(&[]);
    let wire = Wire::veth(Version::Ipv4);
    let (steered, burner) = (wire.steer(), burn(burning));
    // The client and its servers share a CPU, so that every wakeup costs the same. The softirq runs on another one.
    on_first_cpu();
    // A server for each request of a turn, so that each request finds its server equally cold.
    let servers: Vec<_> = (0..=RATIO).map(|n| Server::start(if n == RATIO { few } else { many }, &wire)).collect();
    let round = || {
        answer(&servers, &mut || {
            for _ in 0..requests() {
                servers.iter().for_each(|server| server.client.ask(1));
            }
        });
    };
    // The first read tells whose the sockets are.
    round();
    let rounds: Vec<_> = (0..ROUNDS).map(|_| between(&sidecar, round)).collect();
    drop(burner);

    let ratios = rounds.iter().map(|lines| charged(lines, many) / charged(lines, few)).collect::<Vec<_>>();
    let all: f64 = rounds.iter().map(|[before, after]| time(after, |_| true) - time(before, |_| true)).sum();
    let burners: f64 = rounds.iter().map(|lines| charged(lines, burning)).sum();
    eprintln!("steered {steered}: ratios {ratios:.2?}, {burners} s of {all} s charged to the burner");
    record(CPU_TIME, quantile(ratios, 2), exactly(RATIO as f64));
    assert!(burners <= 0.02 * all, "{burners} s of {all} s");
}

#[test]
fn receivers_pay_in_proportion_and_the_interrupted_task_pays_nothing() {
    everywhere("charges of receivers", proportional);
}

/// In a guest with an instruction-counting clock, every packet of a kind costs the same.
#[test]
#[ignore = "for a virtual machine that counts instructions; `cargo xtask test --only vm-icount` runs it"]
fn vm_icount_receivers_pay_in_proportion() {
    everywhere("charges of receivers by instructions", proportional);
}

/// Sends datagrams that netfilter drops until `stop`, and counts them.
fn flood(wire: &Wire, stop: &AtomicBool, sent: &AtomicUsize) {
    let sender = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    while !stop.load(Ordering::Relaxed) {
        // The local qdisc may refuse a datagram.
        if sender.send_to(b"drop", (wire.server(), 9)).is_ok() {
            sent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn flooded(scene: &Scene) {
    const RULES: &str =
        "table ip filter { chain input { type filter hook prerouting priority 0; udp dport 9 counter drop; }; }";
    let group = scene.group();
    let wire = Wire::veth(Version::Ipv4);
    let nft = wire.right.run(|| Command::new("nft").arg(RULES).output());
    if !nft.as_ref().is_ok_and(|output| output.status.success()) {
        return skip(&format!("charges beside a flood: nftables does not work here: {nft:?}"));
    }
    let sidecar = scene.sidecar(&[]);
    // Everything but the flood is on one CPU: to wake a task on another one costs more than the packet, and how much depends on
    // what runs there.
    let last = *cpus().last().unwrap();
    on_first_cpu();
    wire.steer();
    let Server { worker, socket, client } = Server::start(&group, &wire);
    let requests = RATIO * requests();
    let trickle = || worker.answers(socket, requests, || client.ask(requests));
    trickle();
    let sent = AtomicUsize::new(0);
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..FLOODED_ROUNDS {
        alone.push(charged(&between(&sidecar, trickle), &group));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                pin(None, last);
                flood(&wire, &stop, &sent);
            });
            beside.push(charged(&between(&sidecar, trickle), &group));
            stop.store(true, Ordering::Relaxed);
        });
    }
    let sent = sent.load(Ordering::Relaxed);
    eprintln!("{sent} dropped; charges alone {alone:.4?}, beside the flood {beside:.4?}");
    assert!(sent > FLOODED_ROUNDS * requests, "the flood was a trickle: {sent}");
    // The first quartile, because other programs and the hypervisor only ever add time. Beside the flood a packet shares the start
    // of its softirq with others, so it costs less.
    let alone = quantile(alone, 4);
    record(CPU_TIME, quantile(beside, 4), 0.5 * alone..=alone);
}

#[test]
fn receivers_do_not_pay_for_a_flood_that_netfilter_drops() {
    if virtual_machine().is_some() {
        return skip("charges beside a flood: an emulated processor has no stable cost of a packet");
    }
    everywhere("charges beside a flood", flooded);
}
