//! Names in Prometheus, as its OTLP receiver makes them with the translation strategy `UnderscoreEscapingWithSuffixes`.

use crate::telemetry::{Descriptor, Instrument};

/// The resource attributes that become labels of every series. otel-config/prometheus.yml promotes these attributes for OTLP.
pub const PROMOTED: [&str; 10] = [
    "host.name",
    "k8s.cluster.name",
    "k8s.node.name",
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.container.name",
    "container.name",
    "undercurrent.workload.cgroup",
    "undercurrent.workload.unit",
    "otel.metric.overflow",
];

const TOTAL: &str = "total";
const RATIO: &str = "ratio";

/// Returns the name of a metric: its words, the unit, and `total` for counters, each once.
#[must_use]
pub fn metric(descriptor: &Descriptor) -> String {
    let mut words: Vec<&str> =
        descriptor.name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    if let Some(unit) = unit(descriptor).filter(|unit| !words.contains(unit)) {
        words.push(unit);
    }
    let last = match (descriptor.instrument, descriptor.unit) {
        (Instrument::Counter, _) => Some(TOTAL),
        (Instrument::Gauge, "1") => Some(RATIO),
        _ => None,
    };
    if let Some(last) = last {
        words.retain(|word| *word != last);
        words.push(last);
    }
    words.join("_")
}

/// Returns the name of a metric without the suffix of counters, which OpenMetrics adds to samples.
pub(super) fn family(name: &str, instrument: Instrument) -> &str {
    let suffix = if instrument == Instrument::Counter { "_total" } else { "" };
    name.strip_suffix(suffix).unwrap_or(name)
}

/// Returns the unit in names. Units in braces and `1` are left out.
pub(super) fn unit(descriptor: &Descriptor) -> Option<&'static str> {
    match descriptor.unit {
        "s" => Some("seconds"),
        "By" => Some("bytes"),
        "J" => Some("joules"),
        unit if unit == "1" || unit.starts_with('{') => None,
        unit => Some(unit),
    }
}

/// Returns the label of an attribute.
#[must_use]
pub fn label(key: &str) -> String {
    let name: String = key.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect();
    match name.as_bytes() {
        [b'0'..=b'9', ..] => format!("key_{name}"),
        [b'_', next, ..] if *next != b'_' => format!("key{name}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BYTES, CPU, ENERGY, HOOK, LOST, RATIO as SAMPLING, RTT};

    #[test]
    fn names_have_the_unit_and_total_once() {
        let names = [&BYTES, &CPU, &ENERGY, &HOOK, &LOST, &SAMPLING, &RTT].map(metric);
        insta::assert_snapshot!(names.join("\n"), @"
        undercurrent_network_receive_io_bytes_total
        undercurrent_network_cpu_time_seconds_total
        undercurrent_energy_joules_total
        undercurrent_hook_status
        undercurrent_lost_total
        undercurrent_sampling_ratio
        undercurrent_tcp_rtt_seconds
        ");
        static TOTAL: Descriptor = Descriptor::counter("traces.request.total.seconds", "s", "", &[]);
        assert_eq!(metric(&TOTAL), "traces_request_seconds_total");
        assert_eq!(family(&metric(&TOTAL), TOTAL.instrument), "traces_request_seconds");
    }

    #[test]
    fn labels_have_letters_digits_and_underscores() {
        let labels = ["host.name", "a-b/c", "9lives", "_hidden", "__name", "größe", ""].map(label);
        assert_eq!(labels, ["host_name", "a_b_c", "key_9lives", "key_hidden", "__name", "gr__e", ""]);
    }
}
