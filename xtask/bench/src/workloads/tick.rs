//! Formats the output of `receiver/benches/tick`: the time of a tick on a large node, and the memory of nodes of several sizes.

use std::fmt::Write as _;

use anyhow::Context as _;
use serde::Deserialize;

use crate::{statistics::Median, verdict};

/// Maximum time of the reading in milliseconds.
const LIMIT: f64 = 10.0;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Tick(Tick),
    Memory(Memory),
    /// `cargo xtask bench energy` evaluates it.
    Energy(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct Tick {
    cpus: usize,
    workloads: u16,
    bytes: usize,
    points: u64,
    read: u64,
    group: u64,
    encode: u64,
    encoded: usize,
}

#[derive(Deserialize)]
struct Memory {
    cpus: usize,
    workloads: u16,
    scale: u8,
    bytes: usize,
}

/// Returns the report.
pub fn render(lines: &str) -> anyhow::Result<String> {
    let (mut ticks, mut sizes) = (Vec::new(), Vec::new());
    for line in lines.lines() {
        match serde_json::from_str(line).with_context(|| format!("not a line of the benchmark: {line}"))? {
            Line::Tick(tick) => ticks.push(tick),
            Line::Memory(memory) => sizes.push(memory),
            Line::Energy(_) => {}
        }
    }
    let (mut text, one) = (String::new(), ticks.last().context("the benchmark printed no tick")?);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "a tick of `latency` on {} CPUs with {} workloads: {:.1} MB of cells read, {} points, {:.2} MB of protobuf; release \
         profile,\ncaches cold, ms of CPU time, medians of {} rounds, in brackets 95% intervals",
        one.cpus,
        one.workloads,
        one.bytes as f64 / 1e6,
        one.points,
        one.encoded as f64 / 1e6,
        ticks.len()
    );
    for (n, name) in ["read into readings", "by resource", "to OTLP"].into_iter().enumerate() {
        let time = |tick: &Tick| [tick.read, tick.group, tick.encode][n] as f64 / 1e6;
        let times = ticks.iter().map(time).collect();
        let median = Median::new(times).context("the benchmark printed no tick")?;
        let kept =
            if n == 0 { format!("  at most {LIMIT:.0}: {}", verdict(median.value, LIMIT)) } else { String::new() };
        let (low, high) = median.interval;
        let _ = writeln!(text, "  {name:<20}{:>7.2} [{low:.2}, {high:.2}]{kept}", median.value);
    }
    memory(&mut text, &sizes);
    Ok(text)
}

/// Writes a row for each node and a column for each scale.
fn memory(text: &mut String, sizes: &[Memory]) {
    let mut scales: Vec<u8> = sizes.iter().map(|size| size.scale).collect();
    scales.sort_unstable();
    scales.dedup();
    let _ = write!(text, "\nkernel memory of all maps, MiB\n{:<11}{:>5}", "WORKLOADS", "CPUS");
    for scale in scales {
        let _ = write!(text, "{:>10}", format!("scale {scale}"));
    }
    for row in sizes.chunk_by(|one, other| (one.workloads, one.cpus) == (other.workloads, other.cpus)) {
        let Some(first) = row.first() else { continue };
        let _ = write!(text, "\n{:<11}{:>5}", first.workloads, first.cpus);
        for size in row {
            let _ = write!(text, "{:>10.1}", size.bytes as f64 / f64::from(1 << 20));
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(milliseconds: u64) -> String {
        let read = milliseconds * 1_000_000;
        format!(
            r#"{{"tick":{{"cpus":64,"workloads":100,"bytes":20000000,"points":600,"read":{read},"group":1000,"encode":2000000,"encoded":500000}}}}"#
        )
    }

    #[test]
    fn the_limit_applies_to_reading() {
        let text = |milliseconds| render(&tick(milliseconds)).unwrap();
        assert!(text(10).contains("10.00 [10.00, 10.00]  at most 10: kept"), "{}", text(10));
        assert!(text(11).contains("at most 10: MISSED"));
        assert!(render("").is_err() && render("{}").is_err());
    }

    #[test]
    fn memory_has_a_row_for_each_node() {
        let of = |cpus, scale, mib: u64| {
            format!(r#"{{"memory":{{"cpus":{cpus},"workloads":100,"scale":{scale},"bytes":{}}}}}"#, mib << 20)
        };
        let lines = [of(2, 0, 1), of(2, 1, 2), of(64, 0, 3), of(64, 1, 40), tick(1)].join("\n");
        let text = render(&lines).unwrap();
        assert!(
            text.contains("100            2       1.0       2.0\n100           64       3.0      40.0\n"),
            "{text}"
        );
    }
}
