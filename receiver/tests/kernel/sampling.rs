//! Tests that sampling measures fewer packets and results in equal values.

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use super::{
    latency::{LOST, seen, sees_datagrams, served_by},
    support::{
        line::{Line, Value},
        sidecar::Sidecar,
        surroundings::{alone, often, patience, skip, virtual_machine, wait_for},
        talk::Talk,
        truth::{exactly, record},
        wire::{Version, Wire},
    },
    waits::{WAIT, between, keeps_waits},
};

const RATIO: &str = "undercurrent.sampling.ratio";
const ONE_IN: f64 = 8.0;
const LAYERS: [&str; 3] = ["transport", "socket_enqueued", "socket_read"];

/// Sends as many datagrams as possible, one at a time, for a while.
fn flood(wire: &Wire, lasting: Duration) {
    let from = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    let to = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    from.connect(to.local_addr().unwrap()).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < lasting {
        from.send(&[0x55; 64]).unwrap();
        to.recv(&mut [0; 64]).unwrap();
    }
}

#[test]
fn fewer_packets_are_measured_where_they_come_fast() {
    let Some(_alone) = alone("adaptive sampling") else { return };
    let sidecar = Sidecar::start_with(often(), &["--sampling", "adaptive"], &[]);
    let wire = Wire::loopback(Version::Ipv4);
    let ratio = |line: &Line| line.find(RATIO, &[]).next().expect("a ratio").value.clone();
    assert_eq!(ratio(&sidecar.snapshot()), Value::Number(1.0));
    let (before, counted) = (sidecar.snapshot(), wire.received());
    flood(&wire, Duration::from_secs(4));
    let (fast, counted) = (sidecar.snapshot(), wire.settled() - counted);
    let (sent, rate) = (counted.udp_of(Version::Ipv4) as f64, counted.udp_of(Version::Ipv4) as f64 / 4.0);
    let seen = |line: &Line| seen(line, "transport", Some("udp"), Version::Ipv4);
    let (measured, Value::Number(share)) = (seen(&fast) - seen(&before), ratio(&fast)) else { panic!("no ratio") };
    eprintln!("{rate} packets a second, {measured} of {sent} by {share}");
    let deviation = 5.0 * (sent * (1.0 / share - 1.0)).sqrt();
    // Other programs may add packets and raise the rate.
    assert!((measured - sent).abs() <= deviation + sent * 0.01, "{measured} of {sent}");
    if rate < 6_000.0 {
        return skip(&format!(
            "adaptive sampling: this machine receives {rate:.0} packets a second, all of which are measured"
        ));
    }
    assert!(share < 1.0, "all of {rate} packets a second are measured");
    // The share doubles once per second.
    wait_for("every packet to be measured again", patience(Duration::from_secs(20)), || {
        (ratio(&sidecar.snapshot()) == Value::Number(1.0)).then_some(())
    });
}

#[test]
fn a_sample_is_the_same_packets_at_every_layer_and_counts_for_all() {
    let Some(_alone) = alone("a sample of packets") else { return };
    let sidecar = Sidecar::start_with(often(), &["--sampling", &format!("1/{ONE_IN}")], &[]);
    let wire = Wire::best(Version::Ipv4);
    let mut talk = Talk::open(&wire);
    let before = sidecar.snapshot();
    talk.udp(if virtual_machine().is_some() { 400 } else { 4000 }, 200);
    let after = sidecar.snapshot();
    let ratio = after.find(RATIO, &[]).next().expect("a ratio").value.clone();
    assert_eq!(ratio, Value::Number(1.0 / ONE_IN));
    let counted = |layer| {
        let seen = |line: &Line| seen(line, layer, Some("udp"), Version::Ipv4);
        seen(&after) - seen(&before)
    };
    let sent = talk.udp_reads as f64;
    record(RATIO, 1.0 / ONE_IN, exactly(counted("transport") / ONE_IN / sent));
    // Five standard deviations of a binomial share: exceeded once in a million runs.
    let deviation = 5.0 * (sent * (ONE_IN - 1.0)).sqrt();
    for layer in LAYERS.into_iter().filter(|layer| sees_datagrams(&after, layer)) {
        let count = counted(layer);
        assert_eq!(count % ONE_IN, 0.0, "{layer}: {count} is no multiple of {ONE_IN}");
        assert!((count - sent).abs() < deviation, "{layer}: {count} of {sent}");
        // For packets queued before the sidecar knew the reader, their membership in the sample is unknown.
        let unmatched = [("undercurrent.network.layer", layer), ("undercurrent.reason", "missing_start")];
        if virtual_machine().is_some() && after.total(LOST, &unmatched) == before.total(LOST, &unmatched) {
            assert_eq!(count, counted("transport"), "{layer} measured other packets than transport");
        }
    }
}

#[test]
fn waits_of_connections_are_a_sample_that_counts_for_all() {
    let Some(_alone) = alone("a sample of waits") else { return };
    let sidecar = Sidecar::start_with(often(), &["--sampling", &format!("1/{ONE_IN}")], &[]);
    let before = sidecar.snapshot();
    if !keeps_waits(&before) || served_by(&before, "socket_enqueued").is_none() {
        return skip("a sample of waits: no program keeps the waits of connections");
    }
    let mut talk = Talk::open(&Wire::best(Version::Ipv4));
    talk.tcp(if virtual_machine().is_some() { 200 } else { 2000 }, 200);
    let (count, _) = between([&before, &sidecar.snapshot()], WAIT, &[("network.transport", "tcp")]);
    let reads = talk.tcp_reads as f64;
    assert_eq!(count % ONE_IN, 0.0, "{count} is no multiple of {ONE_IN}");
    assert!((count - reads).abs() < 5.0 * (reads * (ONE_IN - 1.0)).sqrt(), "{count} of {reads}");
}
