use std::num::NonZeroUsize;

use super::*;
use crate::{
    telemetry::{Attributes, Data, Metric, Snapshot},
    testing::{CPU_TIME, DURATION, RECEIVE_WAIT, after, histogram, node, point, resource_metrics},
    view::{Recent, View},
};

/// Returns the figures of an idle host.
fn idle() -> Figures {
    Figures::default()
        .with(Figure::Segments, 200.0)
        .with(Figure::Wait, 80e-6)
        .with(Figure::Host, 120e-6)
        .with(Figure::Stack, 5e-6)
        .with(Figure::Rtt, 40e-6)
        .with(Figure::Retransmits, 0.0)
        .with(Figure::RetransmitShare, 0.0)
        .with(Figure::Drops, 0.0)
        .with(Figure::DropShare, 0.0)
        .with(Figure::Cpu, 0.02)
        .with(Figure::NodeBusy, 0.05)
        .with(Figure::Steal, 0.0)
}

fn cause(changes: &[(Figure, f64)]) -> Cause {
    Cause::of(&changes.iter().fold(idle(), |figures, (figure, value)| figures.with(*figure, *value)))
}

#[test]
fn an_idle_host_and_a_workload_without_figures_have_no_cause() {
    assert_eq!((cause(&[]), Cause::of(&Figures::default())), (Cause::None, Cause::None));
    // Busy CPUs, a full link and steal are no cause of a latency that is short.
    assert_eq!(cause(&[(Figure::NodeBusy, 1.0), (Figure::Cpu, 0.9), (Figure::Steal, 0.3)]), Cause::None);
}

#[test]
fn a_long_wait_has_its_cause_in_the_reader_or_its_cpu() {
    const WAIT: (Figure, f64) = (Figure::Wait, 40e-3);
    assert_eq!(cause(&[WAIT]), Cause::Reader);
    assert_eq!(cause(&[WAIT, (Figure::NodeBusy, 0.97), (Figure::Cpu, 0.3)]), Cause::NoCpu);
    // A reader that sleeps most of the time gets a CPU soon.
    assert_eq!(cause(&[WAIT, (Figure::NodeBusy, 0.97)]), Cause::Reader);
    // The workload uses a whole CPU.
    assert_eq!(cause(&[WAIT, (Figure::NodeBusy, 0.97), (Figure::Cpu, 0.95)]), Cause::Reader);
    assert_eq!(cause(&[WAIT, (Figure::NodeBusy, 0.97), (Figure::Throttled, 0.4)]), Cause::Quota);
    assert_eq!(cause(&[WAIT, (Figure::Steal, 0.2)]), Cause::Steal);
    // A slow reader overflows its queue: the drops are no cause of their own.
    assert_eq!(cause(&[WAIT, (Figure::Drops, 50.0), (Figure::DropShare, 0.2)]), Cause::Reader);
}

#[test]
fn a_quota_is_a_cause_without_a_wait() {
    assert_eq!(cause(&[(Figure::Throttled, 0.05)]), Cause::Quota);
    assert_eq!(cause(&[(Figure::Throttled, 0.04)]), Cause::None);
}

#[test]
fn late_packets_are_late_softirqs_unless_they_wait_longer_in_the_socket() {
    const LATE: (Figure, f64) = (Figure::Stack, 20e-3);
    assert_eq!(cause(&[LATE]), Cause::Softirqs);
    assert_eq!(cause(&[LATE, (Figure::Wait, 30e-3)]), Cause::Reader);
    assert_eq!(cause(&[LATE, (Figure::Steal, 0.2)]), Cause::Steal);
}

#[test]
fn drops_of_the_host_are_a_cause_above_a_share() {
    assert_eq!(cause(&[(Figure::Drops, 2.0), (Figure::DropShare, 0.01)]), Cause::Drops);
    assert_eq!(cause(&[(Figure::Drops, 2.0), (Figure::DropShare, 0.009)]), Cause::None);
    assert_eq!(cause(&[(Figure::Drops, 0.5), (Figure::DropShare, 0.5)]), Cause::None);
}

#[test]
fn the_network_is_slow_or_loses_packets() {
    assert_eq!(cause(&[(Figure::Rtt, 80e-3)]), Cause::Network);
    // An idle peer acknowledges late.
    assert_eq!(cause(&[(Figure::Rtt, 42e-3)]), Cause::None);
    assert_eq!(cause(&[(Figure::Retransmits, 5.0), (Figure::RetransmitShare, 0.02)]), Cause::Network);
    assert_eq!(cause(&[(Figure::Retransmits, 0.5), (Figure::RetransmitShare, 0.02)]), Cause::None);
    // Packets of a far peer that wait for their reader.
    assert_eq!(cause(&[(Figure::Rtt, 80e-3), (Figure::Wait, 15e-3)]), Cause::Reader);
}

#[test]
fn every_cause_has_a_rule_with_its_evidence() {
    for rule in &RULES {
        assert!(!rule.conditions.is_empty(), "{rule:?}");
    }
    let figures = idle().with(Figure::Wait, 40e-3);
    let rule = Rule::of(&figures).expect("a rule");
    let evidence: Vec<String> = rule.conditions.iter().map(|condition| condition.evidence(&figures)).collect();
    assert_eq!(
        evidence,
        [
            "wait in the socket (p99): 40.0ms (at least 10.0ms)",
            "wait in the socket (p99): 40.0ms (time to the transport protocol (p99): 5.00µs)"
        ]
    );
}

#[test]
fn every_figure_has_its_definition() {
    assert!(Figure::ALL.iter().enumerate().all(|(position, figure)| *figure as usize == position));
    let waits = [Figure::Segments, Figure::Response, Figure::Power].map(Figure::heading);
    assert_eq!(waits, ["seg/s", "resp", "power"]);
}

/// Returns a snapshot of the node and of two workloads. `long` is the number of long waits of the first.
fn snapshot(factor: u64, long: u64) -> Snapshot {
    let tcp = || Attributes::new().with("network.transport", "tcp").with("network.type", "ipv4");
    let wait = |counts: Vec<u64>| {
        let counts = counts.into_iter().map(|count| count * factor).collect();
        Metric { descriptor: &RECEIVE_WAIT, points: vec![point(tcp(), Data::Histogram(histogram(-60, counts, 0.0)))] }
    };
    let layer = |name: &'static str| tcp().with("undercurrent.network.layer", name);
    let duration = || {
        let points = ["transport", "socket_read"]
            .map(|name| point(layer(name), Data::Histogram(histogram(-60, vec![100 * factor], 0.0))));
        Metric { descriptor: &DURATION, points: points.into() }
    };
    let cpu = |seconds: f64| Metric {
        descriptor: &CPU_TIME,
        points: vec![point(Attributes::new(), Data::Double(seconds * factor as f64))],
    };
    let mut snapshot = node(vec![cpu(0.1)], after(10 * factor));
    let mut slow = vec![0; 40];
    slow[0] = 90;
    slow[39] = long;
    for (name, metrics) in [
        ("slow", vec![wait(slow), duration(), cpu(1.0)]),
        ("quick", vec![wait(vec![100]), duration(), cpu(2.0)]),
        ("idle", vec![cpu(0.0)]),
    ] {
        snapshot.resources.push(resource_metrics(Attributes::new().with("container.name", name), metrics));
    }
    snapshot
}

#[test]
fn figures_are_those_of_the_interval_and_of_one_workload() {
    let (earlier, later) = (snapshot(1, 0), snapshot(2, 10));
    let view = View::new(Some(&earlier), &later, &Recent::default(), NonZeroUsize::new(2));
    let names: Vec<&str> = view.workloads.iter().map(|workload| workload.name.as_str()).collect();
    // The node and the idle workload have no figure of the network.
    assert_eq!(names, ["slow", "quick"]);
    let [slow, quick] = view.workloads.as_slice() else { panic!("{:?}", view.workloads) };
    assert_eq!((slow.cause, quick.cause), (Cause::Reader, Cause::None));
    let figures = |workload: &Workload| {
        [Figure::Segments, Figure::Cpu, Figure::NodeBusy].map(|figure| workload.figures.get(figure))
    };
    // 100 packets in ten seconds; the node has two CPUs.
    assert_eq!(figures(slow), [Some(10.0), Some(0.1), Some(0.155)]);
    assert_eq!(figures(quick), [Some(10.0), Some(0.2), Some(0.155)]);
    assert!(slow.figures.get(Figure::Wait) > Some(10e-3) && quick.figures.get(Figure::Wait) < Some(1e-3));
}

#[test]
fn workloads_are_sorted_by_a_figure_or_by_name() {
    let workload = |name: &str, wait: Option<f64>, segments| {
        let figures = Figures::default().with(Figure::Segments, segments);
        let figures = wait.map_or(figures, |wait| figures.with(Figure::Wait, wait));
        Workload { name: name.to_owned(), figures, cause: Cause::of(&figures) }
    };
    let mut workloads = vec![workload("b", None, 7.0), workload("a", Some(0.1), 1.0), workload("c", Some(0.5), 2.0)];
    let mut names = |sort: Sort| {
        sort.sort(&mut workloads);
        workloads.iter().map(|workload| workload.name.clone()).collect::<String>()
    };
    assert_eq!(names(Sort::default()), "cab");
    assert_eq!(names(Sort::Figure(Figure::Segments)), "bca");
    assert_eq!(names(Sort::Name), "abc");
}
