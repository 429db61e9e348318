//! Compares softirqs with ftrace, which observes the runs by another clock and without BPF.

use std::{thread, time::Duration};

use super::{
    support::{
        ftrace::Ftrace,
        line::Line,
        load::Load,
        sidecar::Sidecar,
        surroundings::{alone, often, patience, skip},
        truth::{exactly, record},
        wire::{Version, Wire},
    },
    waits::between,
};

const WAIT: &str = "undercurrent.softirq.wait.duration";

fn time(line: &Line) -> f64 {
    line.total("undercurrent.network.cpu.time", &[("undercurrent.network.event", "receive_softirq")])
}

/// Returns the runs that the wait signal saw start, with or without their raise.
pub fn started(line: &Line) -> f64 {
    let softirq = ("undercurrent.softirq", "net_rx");
    line.total(WAIT, &[softirq]) + line.total("undercurrent.lost", &[softirq, ("undercurrent.reason", "missing_raise")])
}

/// Loads the machine for a time, and compares the counts.
fn compare(load_time: Duration) {
    if let Some(reason) = Ftrace::missing() {
        return skip(&format!("softirq time: {reason}"));
    }
    let wire = Wire::best(Version::Ipv4);
    let ftrace = Ftrace::start();
    let sidecar = Sidecar::start(often());
    let before = sidecar.snapshot();
    let load = Load::start(&wire, patience(load_time * 2));
    thread::sleep(load_time);
    load.stop();
    let after = sidecar.snapshot();
    let seen = ftrace.stop(before.time, after.time);
    drop(sidecar);

    let (ours, runs) = (time(&after) - time(&before), started(&after) - started(&before));
    assert!(seen.begun > 100, "hardly any softirq ran: {seen:?}");
    record("undercurrent.network.cpu.time", ours, exactly(seen.seconds));
    let apart = runs / seen.begun as f64 - 1.0;
    assert!(apart.abs() <= 0.01, "{runs} runs, and {} by ftrace", seen.begun);
    let (_, waited) = between([&before, &after], WAIT, &[("undercurrent.softirq", "net_rx")]);
    record(WAIT, waited, exactly(seen.waited));
}

#[test]
fn receive_time_and_runs_agree_with_ftrace() {
    let Some(_alone) = alone("softirq time") else { return };
    compare(Duration::from_secs(5));
}

/// In a guest with an instruction-counting clock, cycles and nanoseconds are equal.
#[test]
#[ignore = "for a virtual machine that counts instructions; `cargo xtask test --only vm-icount` runs it"]
fn vm_icount_receive_time_and_runs_agree_with_ftrace() {
    let Some(_alone) = alone("softirq time by instructions") else { return };
    compare(Duration::from_millis(300));
}
