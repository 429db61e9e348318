//! Runs a collector that starts the sidecar as its receiver.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use xtask_common::{
    process::{self, patience},
    traffic::Traffic,
};
use xtask_e2e::collector::{embedding, running::Collector};

use crate::{expected, invariants, require_root};

/// The settings of the sidecar. Every measured packet is a slow one, within the budget of spans.
const SETTINGS: &str = "{interval: 1s, packets: {sampling: all}, signals: {slow_packets: {threshold: 1us}}}";
/// The longest time until three snapshots, spans and log records have arrived.
const ARRIVAL: Duration = Duration::from_secs(30);

/// Checks that metrics, spans and logs arrive, and that the sidecar ends with the collector.
pub fn run(sidecar: &Path) -> anyhow::Result<()> {
    require_root()?;
    embedding::test()?;
    let collector = Collector::embedding(sidecar, SETTINGS)?;
    let traffic = Traffic::start()?;
    let arrived = || {
        let signals = [collector.requests()?.len() >= 3, !collector.spans()?.is_empty(), !collector.logs()?.is_empty()];
        Ok(signals.iter().all(|arrived| *arrived).then_some(()))
    };
    process::wait_for("metrics, spans and logs of the sidecar", patience(ARRIVAL), arrived)
        .with_context(|| format!("the collector logged:\n{}", collector.log()))?;
    traffic.stop()?;
    let (before, spans) = (collector.requests()?.len(), collector.spans()?.len());
    let (requests, log) = collector.stop_with_log()?;
    ensure!(requests.len() > before, "the last snapshot did not arrive: {log}");
    ensure!(log.contains("Shutdown complete"), "the collector did not end in order: {log}");
    invariants::check(&requests)?;
    let last = requests.last().context("no request arrived")?;
    expected::node(last)?;
    expected::buckets(last)?;
    println!("e2e receiver: {} requests and {spans} spans of a sidecar inside the collector", requests.len());
    Ok(())
}
