//! Tests of estimates from samples.

use super::*;
use crate::telemetry::{AttributeKey, Instrument, View};

const EVENT: &str = "undercurrent.network.event";
const FUNCTION: &str = "undercurrent.network.function";
const KEYS: &[AttributeKey] = &[
    AttributeKey::listed(EVENT, &["receive", "send"]),
    AttributeKey::listed(FUNCTION, &["gro", "tcp", "udp", "other"]),
];

static TIME: Descriptor = Descriptor {
    name: "undercurrent.function.time",
    unit: "s",
    description: "Time of functions.",
    instrument: Instrument::Counter,
    attributes: KEYS,
    view: View::Sampled { variance: "undercurrent.estimated.variance", total: EVENT },
};
static VARIANCE: Descriptor =
    Descriptor { name: "undercurrent.estimated.variance", unit: "s2", view: View::Hidden, ..ESTIMATED };
static ESTIMATED: Descriptor = Descriptor {
    name: "undercurrent.estimated.time",
    description: "Estimated time.",
    attributes: &[AttributeKey::listed(EVENT, &["receive", "send"])],
    view: View::Estimate {
        variance: "undercurrent.estimated.variance",
        exact: "undercurrent.exact.time",
        busy: "undercurrent.busy.time",
    },
    ..TIME
};
static EXACT: Descriptor = Descriptor { name: "undercurrent.exact.time", view: View::Hidden, ..TIME };
static BUSY: Descriptor = Descriptor { name: "undercurrent.busy.time", attributes: &[], view: View::Hidden, ..TIME };

/// An event, a function, a CPU if any, and the number of samples.
type Sampled = (&'static str, &'static str, Option<u32>, u32);

fn of(event: &'static str) -> Attributes {
    Attributes::new().with(EVENT, event)
}

/// Returns the time of functions and the variance of events. A sample represents a millisecond.
fn functions(sampled: &[Sampled]) -> Vec<Metric> {
    let time = |(event, function, cpu, count): &Sampled| {
        let attributes = of(event).with(FUNCTION, *function);
        let attributes = cpu.iter().fold(attributes, |attributes, cpu| attributes.with("cpu.logical_number", *cpu));
        point(attributes, Data::Double(f64::from(*count) / 1e3))
    };
    let count = |event: &str| sampled.iter().filter(|(of, ..)| *of == event).map(|(.., count)| *count).sum::<u32>();
    let variance = |event: &'static str| point(of(event), Data::Double(f64::from(count(event)) / 1e6));
    vec![
        Metric { descriptor: &TIME, points: sampled.iter().map(time).collect() },
        Metric { descriptor: &VARIANCE, points: ["receive", "send"].map(variance).into() },
    ]
}

/// Renders a section of a table with these metrics.
fn section(title: &str, metrics: Vec<Metric>) -> String {
    let table = render(None, &node(metrics, after(2)), plain(80));
    let lines = table.lines().skip_while(|line| !line.starts_with(title));
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn imprecise_shares_are_added_up() {
    // 20 of 1000 samples have an error of 22%, 26 of 1000 one of 19%. 20 of 24 samples have an error of 9%.
    let functions = functions(&[
        ("receive", "gro", None, 20),
        ("receive", "tcp", None, 26),
        ("receive", "other", None, 954),
        ("send", "udp", None, 20),
        ("send", "other", None, 4),
    ]);
    insta::assert_snapshot!(section("function.time", functions));
}

#[test]
fn a_function_with_all_samples_has_an_error_too() {
    let functions = functions(&[("receive", "tcp", None, 1), ("send", "udp", None, 400)]);
    insta::assert_snapshot!(section("function.time", functions));
}

#[test]
fn the_tree_has_a_column_for_each_cpu() {
    let functions = functions(&[
        ("receive", "tcp", Some(0), 300),
        ("receive", "tcp", Some(3), 100),
        ("receive", "gro", Some(3), 200),
    ]);
    insta::assert_snapshot!(section("function.time", functions));
}

#[test]
fn estimates_have_an_interval_and_the_exact_time() {
    let mut metrics = functions(&[("receive", "tcp", None, 400), ("send", "udp", None, 100)]);
    let estimated = vec![point(of("receive"), Data::Double(0.4)), point(of("send"), Data::Double(0.1))];
    metrics.push(Metric { descriptor: &ESTIMATED, points: estimated });
    metrics.push(Metric { descriptor: &EXACT, points: vec![point(of("receive"), Data::Double(0.41))] });
    metrics.push(Metric { descriptor: &BUSY, points: vec![point(Attributes::new(), Data::Double(2.0))] });
    insta::assert_snapshot!(section("estimated.time", metrics));
}

#[test]
fn a_sample_of_an_idle_cpu_makes_the_interval_wide() {
    // 20 samples of a millisecond, and one of 100 ms.
    let metrics = vec![
        Metric { descriptor: &ESTIMATED, points: vec![point(of("receive"), Data::Double(0.12))] },
        Metric { descriptor: &VARIANCE, points: vec![point(of("receive"), Data::Double(0.01 + 20e-6))] },
        Metric { descriptor: &BUSY, points: vec![point(Attributes::new(), Data::Double(0.03))] },
    ];
    insta::assert_snapshot!(section("estimated.time", metrics));
}

#[test]
fn a_function_that_appears_grew_in_the_last_interval() {
    let (before, now) = (functions(&[]), functions(&[("receive", "tcp", None, 400)]));
    let table = render(Some(&node(before, after(2))), &node(now, after(4)), plain(80));
    // 400 ms in two seconds, not in the four since the start.
    assert!(table.lines().any(|line| line.contains("tcp") && line.contains(" 200 ")), "{table}");
}
