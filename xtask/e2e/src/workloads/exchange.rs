//! A client and a server exchange a known number of messages over the engine's bridge.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use procfs::process::{Process, all_processes};

use super::{Stage, history, history::Ended, peer::Report};

/// Each way.
const DATAGRAMS: u64 = 2000;
const REQUESTS: u64 = 1000;
/// Of a connection with so many requests, each way: one for each message, perhaps one to acknowledge it, and few to begin
/// and end it.
const SEGMENTS: std::ops::RangeInclusive<u64> = REQUESTS + 2..=2 * REQUESTS + 6;

/// Each of the two received what was sent to it, and none of that stands with the node.
pub fn run(stage: &Stage<'_>) -> anyhow::Result<Vec<Ended>> {
    let node = |request: &_| history::node(request).map(|of| history::received(of, "udp")).context("no node");
    let before = (node(&stage.sidecar.snapshot()?)?, of_others()?);

    let server = stage.containers.start("server", &["server"])?;
    stage.containers.wait_until_idle(&server)?;
    let address = stage.containers.address(&server)?;
    let role = ["client", &address, &DATAGRAMS.to_string(), &REQUESTS.to_string()];
    let client = stage.containers.start("client", &role)?;
    stage.containers.wait_until_idle(&client)?;
    let ended = stage.containers.end(vec![server, client])?;
    for Ended { container, report, .. } in &ended {
        let Report { udp, tcp } = report;
        ensure!(*udp == DATAGRAMS, "{} received {udp} datagrams, {DATAGRAMS} were sent", container.name);
        ensure!(SEGMENTS.contains(tcp), "{} received {tcp} segments of {REQUESTS} requests", container.name);
    }
    stage.wait_for_ends(ended.iter().map(|one| &one.container))?;

    let after = (node(&stage.sidecar.snapshot()?)?, of_others()?);
    let grown = after.0 - before.0;
    let others: u64 = after.1.iter().map(|(inode, now)| now - before.1.get(inode).unwrap_or(&0).min(now)).sum();
    ensure!(grown <= others, "{grown} datagrams stand with the node, where {others} arrived outside of the containers");
    let requests = stage.sidecar.requests()?;
    for one in &ended {
        let found = history::last(&requests, &one.container.id)?.map(|totals| totals.received);
        stage.say(&format!("{} received {:?}, the sidecar says {found:?}", one.container.name, one.report));
    }
    stage.say(&format!("{grown} datagrams with the node, {others} in all other namespaces"));
    Ok(ended)
}

/// Datagrams that arrived in each network namespace that some process is in. Those of one that is gone by the end are
/// missing.
fn of_others() -> anyhow::Result<BTreeMap<u64, u64>> {
    let mut others = BTreeMap::new();
    for process in all_processes()?.flatten() {
        // A process may end at any time.
        if let Some((inode, count)) = datagrams(&process) {
            others.insert(inode, count);
        }
    }
    Ok(others)
}

fn datagrams(process: &Process) -> Option<(u64, u64)> {
    let inode = process.namespaces().ok()?.0.get(std::ffi::OsStr::new("net"))?.identifier;
    let old = process.snmp().ok()?;
    let new = process.snmp6().map_or(0, |new| new.udp_in_datagrams + new.udp_in_errors);
    Some((inode, old.udp_in_datagrams + old.udp_in_errors + new))
}
