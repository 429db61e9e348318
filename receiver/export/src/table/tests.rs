mod beside;
mod tree;
mod workloads;

use std::num::NonZeroUsize;

use proptest::prelude::*;

use super::{Layout, text};
use crate::{
    telemetry::{Attributes, Data, Descriptor, Metric, Snapshot, UnixNanos},
    testing::{
        CPU, DROPPED, DURATION, EXPORTED, HOOK, LOST, PROCESSED, SQUEEZED, WAIT, after, histogram, node, point,
        snapshots,
    },
    view::{Recent, View},
};

fn render(previous: Option<&Snapshot>, current: &Snapshot, layout: Layout) -> String {
    super::render(&View::new(previous, current, &Recent::default(), NonZeroUsize::new(2)), layout)
}

fn plain(width: usize) -> Layout {
    Layout { width, colour: false }
}

/// Returns a snapshot with every displayed metric, with all counts multiplied.
fn everything(factor: u32, time: UnixNanos) -> Snapshot {
    let times = |number: i64| Data::Integer(number * i64::from(factor));
    let seconds = |number: f64| Data::Double(number * f64::from(factor));
    let spread = |offset: i32, counts: [u64; 5]| {
        let buckets = counts.map(|count| count * u64::from(factor)).to_vec();
        Data::Histogram(histogram(offset, buckets, 0.001 * f64::from(factor)))
    };
    let layer = |layer: &'static str| Attributes::new().with("undercurrent.network.layer", layer);
    let mut durations = Vec::new();
    for (place, name) in ["socket_read", "transport", "socket_enqueued"].into_iter().enumerate() {
        for (step, transport) in ["udp", "tcp"].into_iter().enumerate() {
            for network in ["ipv4", "ipv6"] {
                let attributes = layer(name).with("network.transport", transport).with("network.type", network);
                let offset = -70 + 8 * (place + step) as i32;
                durations.push(point(attributes, spread(offset, [900, 1400, 210, 30, 2])));
            }
        }
    }
    durations.push(point(layer("ip").with("network.type", "ipv4"), spread(-80, [12_000, 300, 20, 1, 0])));
    let cpu = |event: &'static str, cpu: u32| {
        Attributes::new().with("undercurrent.network.event", event).with("cpu.logical_number", cpu)
    };
    let per_cpu = |numbers: [i64; 2]| {
        let number =
            |(cpu, number): (u32, i64)| point(Attributes::new().with("cpu.logical_number", cpu), times(number));
        (0..).zip(numbers).map(number).collect()
    };
    let metric = |descriptor: &'static Descriptor, points| Metric { descriptor, points };
    let softirq = |name: &'static str| Attributes::new().with("undercurrent.softirq", name);
    let reason = |name: &'static str| Attributes::new().with("undercurrent.reason", name);
    let hook = |name: &'static str, status: &'static str| {
        point(
            Attributes::new().with("undercurrent.hook", name).with("undercurrent.hook.state", status),
            Data::Integer(1),
        )
    };
    let cpu_time = vec![
        point(cpu("transmit_softirq", 0), seconds(0.0004)),
        point(cpu("receive_softirq", 1), seconds(0.0071)),
        point(cpu("receive_softirq", 0), seconds(0.0312)),
    ];
    let wait = vec![point(softirq("net_rx"), spread(-75, [40, 800, 90, 3, 1]))];
    let losses = vec![point(reason("no_timestamp"), times(12)), point(reason("negative"), Data::Integer(0))];
    let hooks = vec![hook("softirq_entry", "healthy"), hook("tcp_v4_rcv", "degraded"), hook("udp_rcv", "unavailable")];
    let json = || Attributes::new().with("otel.component.type", "json");
    let exported = vec![point(json(), times(180)), point(json().with("error.type", "no_space"), times(60))];
    node(
        vec![
            metric(&CPU, cpu_time),
            metric(&WAIT, wait),
            metric(&PROCESSED, per_cpu([14_000, 2100])),
            metric(&DROPPED, per_cpu([0, 0])),
            metric(&SQUEEZED, per_cpu([3, 0])),
            metric(&DURATION, durations),
            metric(&LOST, losses),
            metric(&HOOK, hooks),
            metric(&EXPORTED, exported),
        ],
        time,
    )
}

#[test]
fn table_at_80_columns() {
    let (previous, current) = (everything(3, after(30)), everything(5, after(32)));
    insta::assert_snapshot!(render(Some(&previous), &current, plain(80)));
}

#[test]
fn table_at_120_columns() {
    let (previous, current) = (everything(3, after(30)), everything(5, after(32)));
    insta::assert_snapshot!(render(Some(&previous), &current, plain(120)));
}

#[test]
fn first_table_and_idle_table() {
    let one = everything(1, after(10));
    let again = everything(1, after(20));
    let first = render(None, &one, plain(80));
    let idle = render(Some(&one), &again, plain(80));
    insta::assert_snapshot!(format!("{first}\n\n{idle}"));
}

fn counter(start: UnixNanos, number: i64, time: UnixNanos) -> Snapshot {
    let mut point = point(Attributes::new().with("cpu.logical_number", 0_u32), Data::Integer(number));
    point.start = start;
    node(vec![Metric { descriptor: &PROCESSED, points: vec![point] }], time)
}

fn displayed_rate(previous: &Snapshot, current: &Snapshot) -> String {
    let shown = render(Some(previous), current, plain(80));
    shown.lines().last().and_then(|line| line.split_whitespace().last()).unwrap_or_default().to_owned()
}

#[test]
fn a_new_start_time_restarts_the_count() {
    let before = counter(after(0), 1000, after(10));
    assert_eq!(displayed_rate(&before, &counter(after(0), 1600, after(12))), "300/s");
    assert_eq!(displayed_rate(&before, &counter(after(11), 50, after(12))), "50/s");
    assert_eq!(displayed_rate(&before, &counter(after(11), 2000, after(12))), "2.00k/s");
    assert_eq!(displayed_rate(&before, &counter(after(0), 4, after(12))), "2/s", "fell without a new start");
}

#[test]
fn the_sum_and_the_busiest_of_many_cpus_are_displayed() {
    let points = |factor: i64| {
        (0..64_u32)
            .map(|cpu| {
                let load = if cpu % 7 == 3 { 100 } else { 1 };
                point(Attributes::new().with("cpu.logical_number", cpu), Data::Integer(load * factor))
            })
            .collect()
    };
    let snapshot = |factor, time| node(vec![Metric { descriptor: &PROCESSED, points: points(factor) }], time);
    let shown = render(Some(&snapshot(1, after(1))), &snapshot(2, after(2)), plain(80));
    let rows: Vec<Vec<&str>> = shown.lines().skip(4).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["all", "955/s"]);
    let busiest: Vec<&str> = rows[1..].iter().map(|row| row[0]).collect();
    assert_eq!(busiest, ["3", "10", "17", "24", "31", "38", "45", "52"]);
}

#[test]
fn colour_does_not_change_the_text() {
    let snapshot = everything(2, after(3));
    let coloured = render(None, &snapshot, Layout { colour: true, ..plain(80) });
    assert!(coloured.contains("\x1b[1m"));
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some((text, escape)) = rest.split_once('\x1b') {
        stripped.push_str(text);
        rest = escape.split_once('m').map_or("", |(_, rest)| rest);
    }
    stripped.push_str(rest);
    assert_eq!(stripped, render(None, &snapshot, plain(80)));
}

#[test]
fn tables_follow_each_other() -> std::io::Result<()> {
    let mut stream = Vec::new();
    super::append("a\nb", &mut stream)?;
    super::append("c", &mut stream)?;
    assert_eq!(String::from_utf8_lossy(&stream), "a\nb\n\nc\n\n");
    Ok(())
}

proptest! {
    #[test]
    fn no_line_exceeds_the_width(previous in snapshots(), current in snapshots(), width in 40_usize..200) {
        let shown = render(Some(&previous), &current, plain(width));
        prop_assert!(shown.lines().all(|line| text::width(line) <= width));
        prop_assert!(!shown.chars().any(|c| c != '\n' && c.is_control()));
        prop_assert_eq!(shown, render(Some(&previous), &current, plain(width)));
    }
}
