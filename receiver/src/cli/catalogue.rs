//! `undercurrent signals`: lists every signal with its metrics, as a table or as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::telemetry::{AttributeKey, Descriptor};

/// A signal in the list.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The name in configuration, logs and metrics.
    pub name: &'a str,
    /// A description of one sentence.
    pub description: &'a str,
    /// The metrics of the signal.
    pub metrics: &'a [&'static Descriptor],
}

/// Returns the list as a table.
#[must_use]
pub fn table(signals: &[Entry<'_>]) -> String {
    let mut text = String::new();
    for signal in signals {
        let separator = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{separator}{}: {}", signal.name, signal.description);
        for metric in signal.metrics {
            let _ = writeln!(text, "  {}  [{}, {}]", metric.name, metric.instrument.as_str(), metric.unit);
            let _ = writeln!(text, "      {}", metric.description);
            for attribute in metric.attributes {
                let _ = writeln!(text, "      {}", attribute_line(attribute));
            }
        }
    }
    text
}

fn attribute_line(attribute: &AttributeKey) -> String {
    let opt_in = if attribute.opt_in { " (opt-in)" } else { "" };
    let values = attribute.values().join(", ");
    let values = if values.is_empty() { values } else { format!(": {values}") };
    format!("- {}{opt_in}{values}", attribute.key)
}

/// Returns the list as one JSON document, with a newline at the end.
#[must_use]
pub fn json(signals: &[Entry<'_>]) -> String {
    let signals: Vec<Value> = signals
        .iter()
        .map(|signal| {
            let metrics: Vec<Value> = signal.metrics.iter().map(|metric| metric_json(metric)).collect();
            json!({ "name": signal.name, "description": signal.description, "metrics": metrics })
        })
        .collect();
    format!("{:#}\n", json!({ "signals": signals }))
}

fn metric_json(metric: &Descriptor) -> Value {
    let attribute = |attribute: &AttributeKey| json!({ "key": attribute.key, "values": attribute.values(), "opt_in": attribute.opt_in });
    json!({
        "name": metric.name,
        "instrument": metric.instrument.as_str().replace([' ', '-'], "_"),
        "unit": metric.unit,
        "description": metric.description,
        "attributes": metric.attributes.iter().map(attribute).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Instrument;

    const WAIT: Descriptor = Descriptor {
        name: "undercurrent.softirq.wait.duration",
        unit: "s",
        description: "Time from raised to running.",
        instrument: Instrument::ExponentialHistogram,
        attributes: &[AttributeKey::listed("undercurrent.softirq", &["net_rx", "net_tx"])],
        view: crate::telemetry::View::Section,
    };
    const DROPPED: Descriptor = Descriptor {
        name: "undercurrent.softnet.dropped",
        unit: "{packet}",
        description: "Packets that found the backlog full.",
        instrument: Instrument::Counter,
        attributes: &[AttributeKey::open("cpu.logical_number", "0, 1, ...").opt_in()],
        view: crate::telemetry::View::Section,
    };

    fn signals() -> [Entry<'static>; 2] {
        [
            Entry { name: "softirq_wait", description: "How long softirqs wait.", metrics: &[&WAIT] },
            Entry { name: "softnet", description: "The kernel's own counts.", metrics: &[&DROPPED] },
        ]
    }

    #[test]
    fn the_list_for_people() {
        insta::assert_snapshot!(table(&signals()), @"
        softirq_wait: How long softirqs wait.
          undercurrent.softirq.wait.duration  [exponential histogram, s]
              Time from raised to running.
              - undercurrent.softirq: net_rx, net_tx

        softnet: The kernel's own counts.
          undercurrent.softnet.dropped  [counter, {packet}]
              Packets that found the backlog full.
              - cpu.logical_number (opt-in): 0, 1, ...
        ");
    }

    #[test]
    fn programs_read_json() {
        insta::assert_snapshot!(json(&signals()), @r#"
        {
          "signals": [
            {
              "name": "softirq_wait",
              "description": "How long softirqs wait.",
              "metrics": [
                {
                  "name": "undercurrent.softirq.wait.duration",
                  "instrument": "exponential_histogram",
                  "unit": "s",
                  "description": "Time from raised to running.",
                  "attributes": [
                    {
                      "key": "undercurrent.softirq",
                      "values": [
                        "net_rx",
                        "net_tx"
                      ],
                      "opt_in": false
                    }
                  ]
                }
              ]
            },
            {
              "name": "softnet",
              "description": "The kernel's own counts.",
              "metrics": [
                {
                  "name": "undercurrent.softnet.dropped",
                  "instrument": "counter",
                  "unit": "{packet}",
                  "description": "Packets that found the backlog full.",
                  "attributes": [
                    {
                      "key": "cpu.logical_number",
                      "values": [
                        "0, 1, ..."
                      ],
                      "opt_in": true
                    }
                  ]
                }
              ]
            }
          ]
        }
        "#);
    }
}
