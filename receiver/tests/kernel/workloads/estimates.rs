//! CPU time of the receive softirq, estimated from samples, by the workload that receives the packets.

use std::time::Duration;

use super::{
    super::support::{
        line::{Line, Point},
        sidecar::Sidecar,
        surroundings::{alone, often, patience, virtual_machine, wait_for},
        wire::{Version, Wire},
    },
    charges::Server,
    scene::{Scene, everywhere},
    watch::is,
};

const ESTIMATED: &str = "undercurrent.network.estimated_cpu.time";
const VARIANCE: &str = "undercurrent.network.estimated_cpu.variance";
const RECEIVE: (&str, &str) = ("undercurrent.network.event", "receive_softirq");

/// Datagrams to the first workload for each one to the second.
const RATIO: f64 = 10.0;
/// The share of the first workload is known to this much by less samples than a second of a CPU has.
const ERROR: f64 = 0.04;
/// Standard errors beyond which a test fails once in two million runs.
const ERRORS: f64 = 5.0;
/// A part of the first packets of a run, which the driver's work precedes, counts for the receiver of an earlier run.
const BIAS: f64 = 0.05;

/// Returns an amount of the receive softirq in points that satisfy a condition.
fn amount(line: &Line, metric: &str, whose: impl Fn(&Point) -> bool) -> f64 {
    line.find(metric, &[RECEIVE]).filter(|point| whose(point)).map(Point::amount).sum()
}

/// Returns the standard error of the share of the first of two times, by the variances of both, if the share is the expected one. A
/// sample after an idle time can be most of the first time; the error by the measured share would then be too small.
fn share_error(times: [f64; 2], variances: [f64; 2]) -> f64 {
    let share = RATIO / (RATIO + 1.0);
    ((1.0 - share).powi(2) * variances[0] + share.powi(2) * variances[1]).sqrt() / (times[0] + times[1])
}

/// Sends datagrams to two workloads at a ratio. Checks their shares of the receive softirq, and that at most a tenth of its time counts for
/// others.
fn proportional(scene: &Scene, wire: &Wire) {
    let groups = [scene.group(), scene.group()];
    let sidecar = scene.sidecar(&["--level", "normal"]);
    let [many, few] = groups.each_ref().map(|group| Server::start(group, wire));
    let of = |line: &Line, metric| groups.each_ref().map(|group| amount(line, metric, |point| is(point, &group.path)));
    let is_known = || {
        // Nobody reads: a packet that a full queue refuses costs its way to the socket too.
        for _ in 0..200 {
            (0..RATIO as usize).for_each(|_| many.send());
            few.send();
        }
        let line = sidecar.lines().last()?.clone();
        let [first, second] = of(&line, ESTIMATED);
        let error = share_error([first, second], of(&line, VARIANCE));
        (second > 0.0 && error < ERROR).then_some(line)
    };
    let line = wait_for("enough samples", patience(Duration::from_secs(60)), is_known);
    let ([first, second], variances) = (of(&line, ESTIMATED), of(&line, VARIANCE));
    let (share, error) = (first / (first + second), share_error([first, second], variances));
    let expected = RATIO / (RATIO + 1.0);
    let all = amount(&line, ESTIMATED, |_| true);
    eprintln!("share {share:.3} +- {error:.3} of {first:.2} s and {second:.2} s, all {all:.2} s");
    assert!((share - expected).abs() < ERRORS.mul_add(error, BIAS), "{share} instead of {expected}");
    // Packets of other programs on this host are received too.
    let least = if virtual_machine().is_some() { 0.9 } else { 0.8 };
    assert!(first + second > least * all, "the receivers have {} s of {all} s", first + second);
}

#[test]
fn samples_count_for_the_receivers_of_packets() {
    everywhere("samples by receiver", |scene| proportional(scene, &Wire::veth(Version::Ipv4)));
}

/// Packets from outside pass the host before they reach the namespace of their container. The time in both halves counts for the container.
#[test]
fn samples_count_for_the_receivers_of_forwarded_packets() {
    everywhere("samples of routed packets", |scene| {
        let wire = Wire::routed(Version::Ipv4);
        wire.track_connections();
        proportional(scene, &wire);
    });
    everywhere("samples of bridged packets", |scene| proportional(scene, &Wire::bridged(Version::Ipv4)));
}

/// The default level enters one program for a received packet, and has the CPU time of workloads by use all the same.
#[test]
fn the_default_level_has_cpu_time_by_use() {
    let Some(_alone) = alone("uses by estimates") else { return };
    let sidecar = Sidecar::start_with(often(), &["--level", "normal"], &[]);
    let line = sidecar.line("CPU time by use", |line| {
        line.find("undercurrent.cpu.time", &[("undercurrent.cpu.use", "network")]).next().is_some()
    });
    assert!(line.find("undercurrent.network.cpu.time", &[]).next().is_none(), "nothing is measured exactly");
}
