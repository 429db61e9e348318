//! Tests how long packets wait for their readers.

use std::time::Duration;

use super::{
    latency::{DURATION, LOST, left_out, seen, sees_datagrams, served_by},
    support::{
        line::{Line, Value},
        sidecar::Sidecar,
        surroundings::{alone, often, skip, tells_left_out},
        talk::Talk,
        wire::{Version, Wire},
    },
};

pub const WAIT: &str = "undercurrent.network.receive.wait.duration";
/// The delay of every reader, longer than any other wait in the test.
const LATE: Duration = Duration::from_millis(400);
const MESSAGES: usize = 3;
const SIZE: usize = 200;
/// Bytes of a datagram that the tracepoint at `socket_read` sees: its data is in pages, which another function
/// copies.
pub const LONG: usize = 40_000;

/// Returns the size of datagrams that the alternate of `socket_read` sees.
fn datagram(line: &Line) -> usize {
    if sees_datagrams(line, "socket_read") { SIZE } else { LONG }
}

/// Returns the number of durations, and their sum in seconds.
fn amount(line: &Line, metric: &str, attributes: &[(&str, &str)]) -> (f64, f64) {
    let histograms = line.find(metric, attributes).filter_map(|point| match &point.value {
        Value::Histogram(histogram) => Some((histogram.count as f64, histogram.sum.unwrap())),
        _ => None,
    });
    histograms.fold((0.0, 0.0), |(count, sum), (more, longer)| (count + more, sum + longer))
}

/// Returns the number and the sum of durations between two lines.
pub fn between([before, after]: [&Line; 2], metric: &str, attributes: &[(&str, &str)]) -> (f64, f64) {
    let ((count, sum), (more, longer)) = (amount(before, metric, attributes), amount(after, metric, attributes));
    (more - count, longer - sum)
}

fn late_readers(version: Version) {
    let sidecar = Sidecar::start(often());
    let wire = Wire::best(version);
    let mut talk = Talk::open(&wire);
    for transport in ["tcp", "udp"] {
        let before = sidecar.snapshot();
        let reads = match transport {
            "tcp" => {
                talk.tcp_read_after(LATE, MESSAGES, SIZE);
                talk.tcp_reads
            }
            _ => {
                talk.udp_read_after(LATE, MESSAGES, datagram(&before));
                talk.udp_reads
            }
        };
        let lines = [&before, &sidecar.snapshot()];
        let attributes = [("network.transport", transport), ("network.type", version.name())];
        let whole = ["socket_enqueued", "socket_read"].map(|hook| served_by(&before, hook));
        if whole.contains(&None) {
            assert_eq!(before.find(WAIT, &[]).count(), 0, "a wait that nothing measures has points");
            skip(&format!(
                "waits of {transport} over {}: not both of socket_enqueued and socket_read are served",
                version.name()
            ));
            continue;
        }
        let late = reads as f64 * LATE.as_secs_f64();
        let (count, sum) = between(lines, WAIT, &attributes);
        assert!(count >= reads as f64, "{transport}: {count} waits of {reads} reads");
        assert!(sum >= late, "{transport}: {sum} s of {late} s");
        let at = |layer| {
            between(lines, DURATION, &[attributes.as_slice(), &[("undercurrent.network.layer", layer)]].concat())
        };
        assert!(at("socket_read").1 >= late, "{transport}: {:?}", at("socket_read"));
        assert!(
            at("socket_enqueued").1 < late / 2.0,
            "{transport}: late readers show before the queue: {:?}",
            at("socket_enqueued")
        );
    }
}

#[test]
fn late_readers_show_where_they_read_and_in_the_wait_over_ipv4() {
    let Some(_alone) = alone("late readers over IPv4") else { return };
    late_readers(Version::Ipv4);
}

#[test]
fn late_readers_show_where_they_read_and_in_the_wait_over_ipv6() {
    let Some(_alone) = alone("late readers over IPv6") else { return };
    late_readers(Version::Ipv6);
}

#[test]
fn every_read_packet_has_waited_once() {
    let Some(_alone) = alone("waits") else { return };
    let sidecar = Sidecar::start(often());
    let before = sidecar.snapshot();
    let wire = if sees_datagrams(&before, "socket_read") {
        Wire::best(Version::Ipv4)
    } else {
        // The tracepoint does not see a read that verifies the checksum. Loopback omits checksums.
        Wire::loopback(Version::Ipv4)
    };
    let mut talk = Talk::open(&wire);
    talk.tcp(200, SIZE);
    talk.udp(200, datagram(&before));
    let after = sidecar.snapshot();
    for transport in ["tcp", "udp"] {
        let attributes = [("network.transport", transport), ("network.type", "ipv4")];
        let lost = [
            attributes.as_slice(),
            &[("undercurrent.reason", "missing_start"), ("undercurrent.signal", "receive_wait")],
        ]
        .concat();
        let waits = |line: &Line| amount(line, WAIT, &attributes).0 + line.total(LOST, &lost);
        let read = |line: &Line| seen(line, "socket_read", Some(transport), Version::Ipv4);
        if before.find(LOST, &lost).next().is_none() {
            skip(&format!("waits of {transport}: not both of socket_enqueued and socket_read are served"));
        } else {
            assert_eq!(waits(&after) - waits(&before), read(&after) - read(&before), "{transport}");
            let lost = after.total(LOST, &lost) - before.total(LOST, &lost);
            let known = read(&after) - read(&before) - lost;
            eprintln!("{transport}: {known} waits measured, {lost} lost");
            assert!(known > 0.0, "{transport}: all of {lost} waits are lost");
            let most = most_lost([&before, &after], transport, known + lost);
            assert!(lost <= most, "{transport}: {lost} waits are not known, {known} are");
        }
    }
}

/// Returns the largest number of lost waits among `reads`. By fentry and kprobe: two percent of UDP, because a reader on another
/// CPU may be faster than the program at the exit of the enqueuing function; by kprobe also the runs that the kernel
/// skipped. By tracepoint: any number, because a reader may be faster than the tracepoint.
fn most_lost([before, after]: [&Line; 2], transport: &str, reads: f64) -> f64 {
    let hooks = ["socket_enqueued", "socket_read"];
    let overtaken = if transport == "tcp" { 0.0 } else { reads / 50.0 };
    match hooks.map(|hook| served_by(after, hook)).each_ref().map(|by| by.as_deref().unwrap_or_default()) {
        ["fentry", "fentry"] => overtaken,
        ["kprobe", "kprobe"] if tells_left_out() => {
            let skipped = |hook| left_out(after, hook) - left_out(before, hook);
            overtaken + hooks.into_iter().map(skipped).sum::<f64>()
        }
        _ => f64::INFINITY,
    }
}
