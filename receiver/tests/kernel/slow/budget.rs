//! Tests of the budget of spans under a flood of slow packets.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use procfs::process::Process;

use super::{
    super::{
        latency::{LOST, seen, served_by},
        support::{
            line::Line,
            sidecar::Sidecar,
            surroundings::{alone, patience, skip, skipped, virtual_machine, wait_for},
            talk::Talk,
            wire::{Version, Wire},
        },
    },
    SMALL, settings,
};

/// Spans per second.
const BUDGET: f64 = 5.0;
/// Slow packets per second that native runs must exceed.
const FLOOD: f64 = 10_000.0;
/// The reasons for slow packets without a span.
const REASONS: [&str; 2] = ["over_budget", "slow_ring_full"];
/// The reasons of each segment over loopback by fentry: it has no receive timestamp at `ip`, and no socket at `transport`.
const USUAL: [&str; 2] = ["transmit_timestamp", "unknown_owner"];
/// The memory in kibibytes by which the sidecar may grow during a flood.
const GROWTH: u64 = 4096;

fn without_span(line: &Line) -> f64 {
    let lost = |reason| line.total(LOST, &[("undercurrent.signal", "slow_packets"), ("undercurrent.reason", reason)]);
    REASONS.map(lost).iter().sum()
}

/// Returns the losses of all other measurements.
fn other_losses(line: &Line) -> BTreeMap<String, f64> {
    let mut losses = BTreeMap::new();
    for point in line.find(LOST, &[]) {
        let reason = &point.attributes["undercurrent.reason"];
        if !REASONS.contains(&reason.as_str()) && !USUAL.contains(&reason.as_str()) {
            *losses.entry(reason.clone()).or_default() += point.amount();
        }
    }
    losses
}

fn spans(sidecar: &Sidecar) -> f64 {
    sidecar.spans().iter().filter(|span| span.name == "network receive").count() as f64
}

/// Returns the anonymous memory of the worker in kibibytes.
fn memory(sidecar: &Sidecar) -> u64 {
    Process::new(sidecar.pid().cast_signed()).unwrap().status().unwrap().rssanon.unwrap()
}

/// Exchanges packets, and waits until each is a span or counted. Returns the seconds of the exchange.
fn flood(sidecar: &Sidecar, talk: &mut Talk) -> f64 {
    let start = Instant::now();
    talk.tcp(if virtual_machine().is_some() { 500 } else { 100_000 }, SMALL);
    let seconds = start.elapsed().as_secs_f64();
    let all = || (spans(sidecar) + without_span(&sidecar.snapshot()) >= talk.tcp_reads as f64).then_some(());
    wait_for("every slow packet to be a span or counted", patience(Duration::from_secs(5)), all);
    seconds
}

#[test]
fn the_budget_holds_and_no_other_measurement_is_lost() {
    let Some(_alone) = alone("the budget of slow packets") else { return };
    // Every packet takes longer until its read.
    let sidecar = Sidecar::configured(&settings("budget: 5").replace("50ms", "100ns"));
    let wire = Wire::loopback(Version::Ipv4);
    let before = sidecar.snapshot();
    if served_by(&before, "socket_read").is_none() {
        return skip("the budget of slow packets: nothing serves socket_read");
    }
    let mut talk = Talk::open(&wire);
    let start = Instant::now();
    let mut busy = flood(&sidecar, &mut talk);
    let at_first = memory(&sidecar);
    busy += flood(&sidecar, &mut talk);
    let grown = memory(&sidecar).saturating_sub(at_first);
    let (seconds, after, spans) = (start.elapsed().as_secs_f64(), sidecar.snapshot(), spans(&sidecar));
    let rate = talk.tcp_reads as f64 / busy;
    let (earlier, losses) = (other_losses(&before), other_losses(&after));
    let lost = losses.values().sum::<f64>() - earlier.values().sum::<f64>();
    eprintln!("{} slow packets, {rate:.0} per second; {spans} spans, {lost} others lost, {grown} KiB", talk.tcp_reads);
    assert!(rate >= FLOOD || virtual_machine().is_some(), "{rate} slow packets per second are no flood");
    let read = |line: &Line| seen(line, "socket_read", Some("tcp"), Version::Ipv4);
    assert!(read(&after) - read(&before) >= talk.tcp_reads as f64, "reads are missing");
    assert!(lost <= skipped(talk.tcp_reads as usize), "{losses:?}, before the flood {earlier:?}");
    // A full budget pays for one second.
    assert!(spans <= BUDGET * (seconds + 2.0), "{spans} spans in {seconds} s");
    assert!(spans >= BUDGET, "{spans} spans");
    assert!(grown <= GROWTH, "the sidecar grew by {grown} KiB");
}
