//! Tests how often the kernel enters programs at the level `normal`. Entering a program costs a busy server more than its work.

use std::{collections::BTreeMap, thread, time::Instant};

use super::{
    latency::served_by,
    support::{
        counters::Received,
        programs::Entries,
        sidecar::Sidecar,
        surroundings::{alone, often, skip},
        talk::Talk,
        wire::{Version, Wire},
    },
};

const MESSAGES: usize = 300;
const SIZE: usize = 200;
/// Programs of timers and counters, which packets do not enter.
const TIMERS: [&str; 4] = ["sample", "tick", "sched_", "softirq_"];

/// Returns the entries of programs that packets enter.
fn of_packets(entries: &BTreeMap<String, u64>) -> u64 {
    let is_timer = |name: &str| TIMERS.iter().any(|timer| name.starts_with(timer));
    entries.iter().filter(|(name, _)| !is_timer(name)).map(|(_, count)| count).sum()
}

fn entries_of_messages(version: Version) {
    let sidecar = Sidecar::start_with(often(), &["--level", "normal"], &[]);
    let line = sidecar.snapshot();
    if served_by(&line, "socket_arrival").as_deref() != Some("transport") {
        return skip("entries: before Linux 6.2 the wait of a packet needs a program of its own");
    }
    let wire = Wire::best(version);
    let mut talk = Talk::open(&wire);
    let Some(measured) = Entries::begin(sidecar.pid()) else { return skip("entries: no statistics of programs") };
    let (before, others) = (wire.received(), Received::by_others(&wire));
    let began = Instant::now();
    talk.tcp(MESSAGES, SIZE);
    talk.udp(MESSAGES, SIZE);
    let counted = wire.settled() - before;
    let entries = measured.end();
    let others = Received::by_others(&wire) - others;
    let took = began.elapsed();
    // Reads of other sockets enter the program of reads too, for example of those between the parts of the sidecar.
    let Some(idle) = Entries::begin(sidecar.pid()) else { return skip("entries: no statistics of programs") };
    thread::sleep(took);
    let idle = of_packets(&idle.end());
    let entered = of_packets(&entries);
    let of = |received: &Received| received.ip.iter().sum::<u64>();
    let (packets, reads) = (of(&counted), talk.tcp_reads + talk.udp_reads);
    eprintln!("{entered} entries for {packets} packets and {reads} reads, {others:?} of others: {entries:?}");
    assert!(entered >= reads, "{entered} entries for {reads} reads");
    // Other programs on this host receive and read too.
    let most = packets + reads + 2 * of(&others) + 2 * idle;
    assert!(entered <= most, "{entered} entries for {packets} packets and {reads} reads, {idle} without them");
}

#[test]
fn a_packet_enters_one_program_and_a_read_one_over_ipv4() {
    let Some(_alone) = alone("entries over IPv4") else { return };
    entries_of_messages(Version::Ipv4);
}

#[test]
fn a_packet_enters_one_program_and_a_read_one_over_ipv6() {
    let Some(_alone) = alone("entries over IPv6") else { return };
    entries_of_messages(Version::Ipv6);
}
