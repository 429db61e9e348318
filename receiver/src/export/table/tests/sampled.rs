//! Tests of shares that are estimated from samples.

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

/// Renders functions with their numbers of samples. A sample represents a millisecond.
fn section(functions: &[(&'static str, &'static str, u32)]) -> String {
    let points = |data: fn(u32) -> Data| {
        let attributes = |event, function| Attributes::new().with(EVENT, event).with(FUNCTION, function);
        functions.iter().map(|(event, function, count)| point(attributes(*event, *function), data(*count))).collect()
    };
    let metrics = vec![
        Metric { descriptor: &TIME, points: points(|count| Data::Double(f64::from(count) / 1e3)) },
        Metric { descriptor: &SAMPLES, points: points(|count| Data::Integer(count.into())) },
    ];
    let table = render(None, &node(metrics, after(2)), plain(80));
    let lines = table.lines().skip_while(|line| !line.starts_with("function.time"));
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn imprecise_shares_are_hidden() {
    // 20 of 1000 samples have an error of 22%, 26 of 1000 one of 19%. 20 of 24 samples have an error of 9%.
    insta::assert_snapshot!(section(&[
        ("receive", "gro", 20),
        ("receive", "tcp", 26),
        ("receive", "other", 954),
        ("send", "udp", 20),
        ("send", "other", 4),
    ]));
}
