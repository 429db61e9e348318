//! A collector that is down for a long time: it costs neither counts nor memory.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use xtask_common::{process, traffic::Traffic};
use xtask_e2e::collector::{
    otlp::{Attributes, Request, attribute, attributes, histograms, metrics, number, resource, sums},
    running::Collector,
};

use crate::require_root;

/// The time until a request arrives on a busy machine.
const ARRIVAL: Duration = Duration::from_secs(60);
/// The time for the last delivery and the exit.
const STOP: Duration = Duration::from_secs(30);
/// The time between two readings of the memory.
const STEP: Duration = Duration::from_secs(30);
/// The highest growth of the processes' own memory during the outage, in kilobytes.
const GROWTH: u64 = 1024;
/// The largest relative difference of sums of numbers with fractions.
const ROUNDING: f64 = 1e-6;

/// Options of `cargo xtask e2e outage`.
#[derive(clap::Args)]
pub struct Options {
    /// Minutes without a collector
    #[arg(long, default_value_t = 60)]
    minutes: u32,
}

/// A series, by its metric and attributes.
type Series = (String, Attributes);

/// A running sidecar. It ends on drop.
struct Sidecar(Child);

impl Drop for Sidecar {
    fn drop(&mut self) {
        if let Err(error) = process::end(&mut self.0, STOP) {
            eprintln!("the sidecar did not exit: {error:#}");
        }
    }
}

/// Stops the collector for some minutes. The growth that the collectors received must add up to the totals that the sidecar
/// wrote to a file.
pub fn run(sidecar: &Path, options: &Options) -> anyhow::Result<()> {
    require_root()?;
    let folder = tempfile::tempdir().context("cannot create a folder for the sidecar")?;
    let (lines, config) = (folder.path().join("lines"), folder.path().join("config.yaml"));
    fs::write(&config, "workloads: {enabled: false}\nsignals: {slow_packets: {enabled: false}}\n")?;
    let first = Collector::start()?;
    let addresses = first.addresses();
    let child = Command::new(sidecar)
        .args([
            "run",
            "--interval",
            "1s",
            "--output",
            "otlp",
            "--output",
            &format!("json={}", lines.display()),
            "--config",
        ])
        .arg(&config)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", first.endpoint())
        .env("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the sidecar")?;
    let mut sidecar = Sidecar(child);
    wait_for_requests(&first, 3)?;
    let mut requests = first.stop()?;
    let growth = outage(sidecar.0.id(), Duration::from_secs(60 * u64::from(options.minutes)))?;
    let second = Collector::start_at(addresses)?;
    wait_for_requests(&second, 3)?;
    ensure!(process::end(&mut sidecar.0, STOP)?.success(), "the sidecar failed");
    requests.extend(second.stop()?);
    let compared = compare(&deltas(&requests)?, &totals(&Request::read_all(&lines)?)?)?;
    println!(
        "e2e outage: {compared} series lost nothing in {} minutes without a collector; memory grew by {growth} kB",
        options.minutes
    );
    Ok(())
}

fn wait_for_requests(collector: &Collector, number: usize) -> anyhow::Result<()> {
    let arrived = || Ok((collector.requests().is_ok_and(|requests| requests.len() >= number)).then_some(()));
    process::wait_for("requests at the collector", ARRIVAL, arrived)
}

/// Makes traffic without a collector. Returns the growth of the memory after the first quarter, in kilobytes.
///
/// # Errors
/// If the memory grows by more than [`GROWTH`].
fn outage(process: u32, lasting: Duration) -> anyhow::Result<u64> {
    let start = Instant::now();
    let mut first = None;
    loop {
        let traffic = Traffic::start()?;
        thread::sleep(STEP.min(lasting));
        traffic.stop()?;
        let now = memory(process)?;
        // The first packets of a layer or function create series, with or without a collector.
        let growth = if start.elapsed() < lasting / 4 { 0 } else { now.saturating_sub(*first.get_or_insert(now)) };
        println!("e2e outage: {now} kB after {:.0?}", start.elapsed());
        ensure!(growth <= GROWTH, "memory grew by {growth} kB within {:.0?} without a collector", start.elapsed());
        if start.elapsed() >= lasting {
            return Ok(growth);
        }
    }
}

/// Returns the anonymous memory of a process and its descendants in kilobytes.
fn memory(process: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).context("the sidecar has ended")?;
    let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?.parse().ok());
    let mut sum: u64 = own.context("no RssAnon in the status of a process")?;
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    for child in children.split_whitespace() {
        sum += memory(child.parse()?)?;
    }
    Ok(sum)
}

/// Returns the values of the node's series in a request: sums, and the counts of histograms.
fn values(request: &Request) -> impl Iterator<Item = (Series, f64)> {
    let is_node = |of: &&_| attribute(resource(of), "service.name").as_deref() == Some("undercurrent");
    let metrics = request.resource_metrics.iter().filter(is_node).flat_map(metrics);
    metrics.flat_map(|metric| {
        let series = |list| (metric.name.clone(), attributes(list));
        let of_sums = sums(metric).iter().filter_map(move |point| Some((series(&point.attributes), number(point)?)));
        let of_histograms = histograms(metric).iter().map(move |point| (series(&point.attributes), point.count as f64));
        of_sums.chain(of_histograms)
    })
}

/// Returns the sum of what the collectors received of each series.
fn deltas(requests: &[Request]) -> anyhow::Result<BTreeMap<Series, f64>> {
    ensure!(!requests.is_empty(), "no request arrived");
    let mut all = BTreeMap::new();
    requests.iter().flat_map(values).for_each(|(series, value)| *all.entry(series).or_default() += value);
    Ok(all)
}

/// Returns the last total of each series.
fn totals(requests: &[Request]) -> anyhow::Result<BTreeMap<Series, f64>> {
    let last = requests.iter().filter_map(Request::time).max().context("the sidecar wrote no line")?;
    Ok(requests.iter().filter(|request| request.time() == Some(last)).flat_map(values).collect())
}

/// Compares the series of packets, whose counts only grow, and returns their number.
fn compare(received: &BTreeMap<Series, f64>, written: &BTreeMap<Series, f64>) -> anyhow::Result<usize> {
    let is_of_packets = |(metric, _): &&Series| metric.starts_with("undercurrent.network.");
    let mut compared = 0;
    for series in written.keys().filter(is_of_packets) {
        let (received, written) = (received.get(series).copied().unwrap_or_default(), written[series]);
        let difference = (received - written).abs();
        ensure!(difference <= ROUNDING * written, "{series:?}: {received} arrived, and the sidecar counted {written}");
        compared += 1;
    }
    ensure!(compared > 0, "the sidecar wrote no series of packets");
    Ok(compared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_count_is_an_error() {
        let series = |count| BTreeMap::from([(("undercurrent.network.x".to_owned(), Attributes::new()), count)]);
        assert_eq!(compare(&series(7.0), &series(7.0)).unwrap(), 1);
        assert!(compare(&series(6.0), &series(7.0)).is_err());
        assert!(compare(&series(7.0), &BTreeMap::new()).is_err());
    }
}
