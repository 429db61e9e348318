//! A client and a server exchange a known number of messages over the engine's bridge.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use procfs::process::{Process, all_processes};

use super::{Stage, containers::Ended, history, peer::Report};

/// Number of datagrams in each direction.
const DATAGRAMS: u64 = 2000;
/// Number of TCP requests, one reply each.
const REQUESTS: u64 = 1000;
/// Possible numbers of TCP segments in each direction: one per message, at most one acknowledgement per message, and a few for the
/// start and the end of the connection.
const SEGMENTS: std::ops::RangeInclusive<u64> = REQUESTS + 2..=2 * REQUESTS + 6;

/// Checks that each container received the messages of the other, and that the node received none of them.
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
    ensure!(
        grown <= others,
        "the sidecar attributed {grown} datagrams to the node, but only {others} arrived outside the containers"
    );
    let requests = stage.sidecar.requests()?;
    for one in &ended {
        let found = history::last(&requests, &one.container.id)?.map(|totals| totals.received);
        stage.report(&format!("{} received {:?}, the sidecar counted {found:?}", one.container.name, one.report));
    }
    stage.report(&format!("{grown} datagrams attributed to the node, {others} in all other namespaces"));
    Ok(ended)
}

/// Returns the number of received datagrams for each network namespace with a process, by inode. Namespaces that have disappeared are
/// missing.
fn of_others() -> anyhow::Result<BTreeMap<u64, u64>> {
    let mut others = BTreeMap::new();
    for process in all_processes()?.flatten() {
        // A process can exit at any time.
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
