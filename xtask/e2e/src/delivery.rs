//! Runs the sidecar with a real collector on loopback and checks the collector's output.

use std::{collections::BTreeSet, path::Path, process::Command};

use anyhow::{Context as _, bail, ensure};
use xtask_common::{machine, traffic::Traffic};
use xtask_e2e::collector::{otlp::Request, running::Collector};

use crate::{expected, invariants, require_root};

/// Number of intervals of the run, one second each.
const INTERVALS: usize = 5;

/// Runs the sidecar for five intervals under traffic and checks the requests that the collector received.
pub fn run(sidecar: &Path) -> anyhow::Result<()> {
    require_root()?;
    let collector = Collector::start()?;
    let traffic = Traffic::start()?;
    let mut command = Command::new(sidecar);
    command
        .args(["run", "--output", "otlp", "--interval", "1s", "--duration", &format!("{INTERVALS}s")])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint());
    let outcome = machine::output(&mut command);
    let exchanges = traffic.stop()?;
    outcome.with_context(|| format!("the sidecar failed; the collector logged:\n{}", collector.log()))?;
    let requests = collector.stop()?;
    check(&requests)?;
    println!(
        "e2e collector: {} requests are correct under {exchanges} exchanges of each kind, metrics: {}",
        requests.len(),
        names(&requests).into_iter().collect::<Vec<_>>().join(" ")
    );
    Ok(())
}

/// Checks the expectations of this scenario and the invariants of all requests.
fn check(requests: &[Request]) -> anyhow::Result<()> {
    // The last interval and the end of the run coincide, in any order.
    let expected = INTERVALS - 1..=INTERVALS + 1;
    ensure!(expected.contains(&requests.len()), "{} requests arrived, expected {expected:?}", requests.len());
    invariants::check(requests)?;
    let (Some(first), Some(last)) = (requests.first(), requests.last()) else { bail!("no request arrived") };
    expected::node(last)?;
    expected::host_name(last)?;
    expected::softirq_time(last)?;
    expected::buckets(last)?;
    for transport in ["tcp", "udp"] {
        let (before, after) = (expected::received(first, transport)?, expected::received(last, transport)?);
        ensure!(before < after, "{transport}: {before} packets timed in the first request, {after} in the last");
    }
    Ok(())
}

/// Returns the names of all received metrics.
fn names(requests: &[Request]) -> BTreeSet<&str> {
    requests.iter().flat_map(Request::metrics).map(|(_, metric)| metric.name.as_str()).collect()
}
