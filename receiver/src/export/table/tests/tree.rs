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
    view: View::Sampled { samples: "undercurrent.function.samples", total: EVENT },
};
static SAMPLES: Descriptor =
    Descriptor { name: "undercurrent.function.samples", unit: "{sample}", view: View::Hidden, ..TIME };
static ESTIMATED: Descriptor = Descriptor {
    name: "undercurrent.estimated.time",
    description: "Estimated time.",
    attributes: &[AttributeKey::listed(EVENT, &["receive", "send"])],
    view: View::Estimate {
        samples: "undercurrent.function.samples",
        exact: "undercurrent.exact.time",
        busy: "undercurrent.busy.time",
    },
    ..TIME
};
static EXACT: Descriptor = Descriptor { name: "undercurrent.exact.time", view: View::Hidden, ..TIME };
static BUSY: Descriptor = Descriptor { name: "undercurrent.busy.time", attributes: &[], view: View::Hidden, ..TIME };

/// An event, a function, a CPU if any, and the number of samples.
type Sampled = (&'static str, &'static str, Option<u32>, u32);

/// Returns the metrics of functions with their numbers of samples. A sample represents a millisecond.
fn functions(sampled: &[Sampled]) -> Vec<Metric> {
    let points = |data: fn(u32) -> Data| {
        let attributes = |event: &'static str, function: &'static str, cpu: Option<u32>| {
            let attributes = Attributes::new().with(EVENT, event).with(FUNCTION, function);
            cpu.into_iter().fold(attributes, |attributes, cpu| attributes.with("cpu.logical_number", cpu))
        };
        let point = |(event, function, cpu, count): &Sampled| point(attributes(event, function, *cpu), data(*count));
        sampled.iter().map(point).collect()
    };
    vec![
        Metric { descriptor: &TIME, points: points(|count| Data::Double(f64::from(count) / 1e3)) },
        Metric { descriptor: &SAMPLES, points: points(|count| Data::Integer(count.into())) },
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
    let event = |event: &'static str| Attributes::new().with(EVENT, event);
    let mut metrics = functions(&[("receive", "tcp", None, 400), ("send", "udp", None, 100)]);
    let estimated = vec![point(event("receive"), Data::Double(0.4)), point(event("send"), Data::Double(0.1))];
    metrics.push(Metric { descriptor: &ESTIMATED, points: estimated });
    metrics.push(Metric { descriptor: &EXACT, points: vec![point(event("receive"), Data::Double(0.41))] });
    metrics.push(Metric { descriptor: &BUSY, points: vec![point(Attributes::new(), Data::Double(2.0))] });
    insta::assert_snapshot!(section("estimated.time", metrics));
}
