//! Tests of `undercurrent run --output json`: each line is one valid request, and its values agree with the
//! kernel.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    latency::{Agreement, assert_agrees, seen},
    support::{
        counters::Received,
        growth::{Clock, assert_sound},
        line::Line,
        load::Load,
        sidecar::{BINARY, READY, Sidecar, command},
        surroundings::{alone, often, patience, virtual_machine},
        talk::Talk,
        wire::{Version, Wire},
    },
};

#[test]
fn five_seconds_on_standard_output_hold_what_the_kernel_counted() {
    let Some(_alone) = alone("lines on standard output") else { return };
    let wires = Version::ALL.map(Wire::veth);
    let others = Received::by_processes();
    let before = wires.each_ref().map(Wire::received);
    let mut run = command(BINARY);
    run.args(["run", "--output", "json", "--interval", "1s", "--duration", "5s", "--sampling", "all"]);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let log = wait_until_ready(&mut child);
    let talks: Vec<Talk> = wires.iter().map(talk).collect();
    let counted: Vec<Received> = wires.iter().zip(before).map(|(wire, before)| wire.received() - before).collect();
    let output = child.wait_with_output().unwrap();
    drop(talks);
    let others = Received::by_processes() - others;

    assert!(output.status.success(), "{output:?} {:?}", log.join().unwrap());
    let lines = Line::all(std::str::from_utf8(&output.stdout).unwrap());
    let few = if virtual_machine().is_some() { 2 } else { 4 };
    assert!((few..=6).contains(&lines.len()), "{} lines in five seconds", lines.len());
    assert_sound(&lines, Clock::Steady);
    let last = lines.last().unwrap();
    for (wire, counted) in wires.iter().zip(counted) {
        let version = wire.version;
        let of = |transport| seen(last, "transport", Some(transport), version);
        assert_agrees(&format!("tcp {}", version.name()), of("tcp"), counted.tcp, others.tcp, Agreement::Percent);
        let (udp, others) = (counted.udp_of(version), others.udp_of(version));
        assert_agrees(&format!("udp {}", version.name()), of("udp"), udp, others, Agreement::Percent);
    }
}

fn talk(wire: &Wire) -> Talk {
    let mut talk = Talk::open(wire);
    let messages = if virtual_machine().is_some() { 200 } else { 3000 };
    talk.tcp(messages, 300);
    talk.udp(messages, 300);
    talk
}

/// Waits until the log says that all programs are attached. Returns a thread that reads the rest of the log, because the sidecar
/// would block on a full pipe.
fn wait_until_ready(child: &mut Child) -> JoinHandle<Vec<String>> {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let log: Vec<String> = lines.by_ref().take_while(|line| !line.contains(READY)).collect();
    thread::spawn(move || log.into_iter().chain(lines).collect())
}

#[test]
fn counters_never_fall_and_no_softirq_takes_longer_than_there_was_time() {
    let Some(_alone) = alone("lines under load") else { return };
    let wire = Wire::best(Version::Ipv4);
    let sidecar = Sidecar::start(often());
    let load = Load::start(&wire, patience(Duration::from_secs(10)));
    thread::sleep(Duration::from_secs(if virtual_machine().is_some() { 6 } else { 2 }));
    load.stop();
    let lines = sidecar.stop();
    assert!(lines.len() >= 3, "{} lines", lines.len());
    assert_sound(&lines, Clock::Steady);

    let spent = |line: &Line| line.total("undercurrent.network.cpu.time", &[]);
    let spent = spent(lines.last().unwrap()) - spent(&lines[0]);
    assert!(spent > 0.0, "softirqs took no time under load");
}
