//! Expected results of the queries in docs/prometheus.md, in the run of this scenario.

use std::{collections::BTreeSet, thread};

use anyhow::{Context as _, ensure};
use xtask_e2e::prometheus::running::Sample;

use super::{CLIENT, PERIOD, SERVER, pod};
use crate::workloads::containers::IMAGE;

/// The longest plausible duration of a packet in seconds.
const LONGEST: f64 = 10.0;

/// The expectation of a query.
#[derive(Clone, Copy)]
pub struct Check {
    /// The heading in the page.
    pub title: &'static str,
    /// Formats a value of the result.
    pub format: fn(f64) -> String,
    /// Returns an error if the result is not plausible.
    pub verify: fn(&[Sample]) -> anyhow::Result<()>,
}

/// The workloads, each with a label that has its name: two containers of Docker, and one in a pod.
const WORKLOADS: [(&str, &str); 3] =
    [("container_name", CLIENT), ("container_name", SERVER), ("k8s_pod_name", pod::NAME)];

/// The checks in the order of the page.
pub const CHECKS: [Check; 7] = [
    Check { title: "CPU time of the network stack", format: percent, verify: network },
    Check { title: "Receive latency", format: seconds, verify: latency },
    Check { title: "Slow readers", format: percent, verify: slow_readers },
    Check { title: "Host or network", format: number, verify: host_or_network },
    Check { title: "Packet rate", format: number, verify: rate },
    Check { title: "CPU time by image", format: percent, verify: images },
    Check { title: "Degraded hooks", format: number, verify: hooks },
];

fn network(samples: &[Sample]) -> anyhow::Result<()> {
    of_all(samples, 0.0, cpus()?)
}

fn latency(samples: &[Sample]) -> anyhow::Result<()> {
    for (label, workload) in WORKLOADS {
        for transport in ["tcp", "udp"] {
            let found =
                samples.iter().find(|sample| is(sample, label, workload) && is(sample, "network_transport", transport));
            between(found.with_context(|| format!("no {transport} of {workload}"))?, 0.0, LONGEST)?;
        }
    }
    Ok(())
}

fn slow_readers(samples: &[Sample]) -> anyhow::Result<()> {
    // The difference of two sums, so zero may be a rounding error.
    of_all(samples, -1e-9, 1.0)
}

fn host_or_network(samples: &[Sample]) -> anyhow::Result<()> {
    of_all(samples, 0.0, 1e6)
}

/// One datagram and one segment with data in each period, and an acknowledgement at most for each segment. A busy machine sends fewer.
fn rate(samples: &[Sample]) -> anyhow::Result<()> {
    let nominal = 2.0 / PERIOD.as_secs_f64();
    of_all(samples, nominal / 4.0, nominal * 2.0)
}

fn images(samples: &[Sample]) -> anyhow::Result<()> {
    for (label, workload) in WORKLOADS {
        let sample =
            samples.iter().find(|sample| is(sample, label, workload) && is(sample, "container_image_name", IMAGE));
        between(sample.with_context(|| format!("{workload} has not the image {IMAGE}"))?, 0.0, cpus()?)?;
    }
    Ok(())
}

fn cpus() -> anyhow::Result<f64> {
    Ok(thread::available_parallelism()?.get() as f64)
}

/// Each host supports some hooks, and no test host supports all.
fn hooks(samples: &[Sample]) -> anyhow::Result<()> {
    let states: BTreeSet<_> =
        samples.iter().filter_map(|sample| sample.labels.get("undercurrent_hook_state")).collect();
    let known = ["degraded", "unavailable"];
    ensure!(states.iter().all(|state| known.contains(&state.as_str())), "{states:?}");
    ensure!(samples.iter().all(|sample| sample.value == 1.0), "{samples:?}");
    Ok(())
}

/// Checks the values of all workloads.
fn of_all(samples: &[Sample], above: f64, most: f64) -> anyhow::Result<()> {
    WORKLOADS.iter().try_for_each(|(label, name)| between(find(samples, label, name)?, above, most))
}

fn find<'a>(samples: &'a [Sample], label: &str, value: &str) -> anyhow::Result<&'a Sample> {
    samples.iter().find(|sample| is(sample, label, value)).with_context(|| format!("no {label}={value} in {samples:?}"))
}

fn is(sample: &Sample, label: &str, value: &str) -> bool {
    sample.labels.get(label).is_some_and(|found| found == value)
}

fn between(sample: &Sample, above: f64, most: f64) -> anyhow::Result<()> {
    // A comparison with NaN is false.
    let plausible = sample.value > above && sample.value <= most;
    ensure!(plausible, "{:?} has the value {}, not between {above} and {most}", sample.labels, sample.value);
    Ok(())
}

/// Formats a share.
fn percent(share: f64) -> String {
    format!("{}%", number(share * 100.0))
}

/// Formats a duration.
fn seconds(value: f64) -> String {
    match value {
        ..1e-3 => format!("{} µs", number(value * 1e6)),
        1e-3..1.0 => format!("{} ms", number(value * 1e3)),
        _ => format!("{} s", number(value)),
    }
}

/// Formats a number with three significant digits.
fn number(value: f64) -> String {
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let digits = usize::try_from(2 - magnitude).unwrap_or(0);
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_a_unit() {
        assert_eq!([1234.4, 12.34, 1.0, 0.0, 0.004_321].map(number), ["1234", "12.3", "1", "0", "0.00432"]);
        assert_eq!([7.26e-5, 0.0123, 1.5].map(seconds), ["72.6 µs", "12.3 ms", "1.5 s"]);
        assert_eq!(percent(0.0067), "0.67%");
    }

    #[test]
    fn implausible_values_are_named() {
        let sample = |value| Sample { labels: [("container_name".into(), CLIENT.into())].into(), value };
        for (value, good) in [(f64::NAN, false), (0.0, false), (0.5, true), (1.0, true), (1.5, false)] {
            assert_eq!(between(&sample(value), 0.0, 1.0).is_ok(), good, "{value}");
        }
        assert!(of_all(&[sample(0.5)], 0.0, 1.0).unwrap_err().to_string().contains(SERVER));
    }
}
