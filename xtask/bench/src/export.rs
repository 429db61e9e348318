//! `cargo xtask bench export`: measures the delivery of a full snapshot of a node with many workloads.

use std::{fmt::Write as _, process::Command};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use xtask_common::machine;

use super::{
    build::{self, Profile},
    host::description,
    statistics::Median,
    verdict,
};

/// Maximum CPU time of a delivery in milliseconds.
const TIME: f64 = 50.0;
/// Maximum size of a compressed delivery in megabytes.
const SIZE: f64 = 1.0;

/// Options of `cargo xtask bench export`.
#[derive(clap::Args)]
pub struct Options {
    /// Snapshots for each protocol and compression
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Workloads on the node
    #[arg(long, default_value_t = 1000)]
    workloads: u32,
}

/// A delivered snapshot, as `receiver/benches/export` prints it.
#[derive(Deserialize)]
struct Delivery {
    workloads: u32,
    protocol: String,
    compression: String,
    points: u64,
    requests: u64,
    bytes: u64,
    cpu: u64,
}

/// Measures, and prints a table.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut benchmark = Command::new(build::benchmark("export", Profile::Release)?);
    benchmark.args(["--rounds", &options.rounds.to_string(), "--workloads", &options.workloads.to_string()]);
    println!("{}", description());
    print!("{}", render(&machine::output(&mut benchmark)?)?);
    Ok(())
}

/// Returns the report.
fn render(lines: &str) -> anyhow::Result<String> {
    let delivery = |line: &str| -> anyhow::Result<Delivery> {
        serde_json::from_str(line).with_context(|| format!("not a line of the benchmark: {line}"))
    };
    let all = lines.lines().map(delivery).collect::<anyhow::Result<Vec<_>>>()?;
    let first = all.first().context("the benchmark printed no delivery")?;
    let same =
        |one: &&Delivery, other: &&Delivery| (&one.protocol, &one.compression) == (&other.protocol, &other.compression);
    let all: Vec<&Delivery> = all.iter().collect();
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "a snapshot of a node with {} workloads, {} points, to a collector in another process; release profile, medians, in \
         brackets 95% intervals\n{:<15}{:<13}{:>10}{:>9}  ms of CPU time",
        first.workloads, first.points, "PROTOCOL", "COMPRESSION", "REQUESTS", "MB"
    );
    for run in all.chunk_by(same) {
        ensure!(run.iter().all(|one| one.points == first.points), "the snapshots differ in their points");
        let median = |value: &dyn Fn(&Delivery) -> f64| Median::new(run.iter().map(|one| value(one)).collect());
        let cpu = median(&|one| one.cpu as f64 / 1e6).context("no delivery")?;
        let size = median(&|one| one.bytes as f64 / 1e6).context("no delivery")?.value;
        let Delivery { protocol, compression, requests, .. } = run[0];
        let _ = write!(text, "{protocol:<15}{compression:<13}{requests:>10}{size:>9.2}{:>8.1} ", cpu.value);
        let _ = write!(text, "{}  at most {TIME:.0}: {}", cpu.bracketed(), verdict(cpu.value, TIME));
        if compression != "none" {
            let _ = write!(text, ", at most {SIZE:.0} MB: {}", verdict(size, SIZE));
        }
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(compression: &str, milliseconds: u64, bytes: u64) -> String {
        let cpu = milliseconds * 1_000_000;
        format!(
            r#"{{"workloads":1000,"protocol":"grpc","compression":"{compression}","points":17,"requests":2,"bytes":{bytes},"cpu":{cpu}}}"#
        )
    }

    #[test]
    fn both_limits_are_checked() {
        let text = |lines: &[String]| render(&lines.join("\n")).unwrap();
        let kept = text(&[line("none", 49, 9_000_000), line("gzip", 51, 1_100_000)]);
        assert!(kept.contains("9.00    49.0 [49.0, 49.0]  at most 50: kept\n"), "{kept}");
        assert!(kept.contains("1.10    51.0 [51.0, 51.0]  at most 50: MISSED, at most 1 MB: MISSED\n"), "{kept}");
        assert!(render("").is_err() && render("{}").is_err());
    }
}
