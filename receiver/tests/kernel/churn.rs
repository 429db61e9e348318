//! Tests that short-lived containers leave nothing behind, and that none of their packets is lost.

use std::{collections::BTreeMap, time::Duration};

use super::{
    latency::{DURATION, LOST, served_by},
    support::{
        churn::Churn,
        line::{Line, Value},
        sidecar::Sidecar,
        surroundings::{alone, often, patience, skip, virtual_machine, wait_for},
    },
};

/// Reasons for which packets of short-lived containers may be attributed to the node.
const REASONS: [&str; 5] = ["unknown_owner", "storage_refused", "cgroup_event_lost", "table_full", "scan_cut"];

/// Returns the UDP packets at a layer of containers with this prefix of their ids, from the last point of each.
fn received(lines: &[Line], layer: &str, prefix: &str) -> f64 {
    let of = [("undercurrent.network.layer", layer), ("network.transport", "udp")];
    let mut last = BTreeMap::new();
    for point in lines.iter().flat_map(|line| line.find(DURATION, &of)) {
        let container = point.resource.get("container.id").filter(|id| id.starts_with(prefix));
        if let (Some(id), Value::Histogram(histogram)) = (container, &point.value) {
            last.insert((id.clone(), point.attributes.clone()), histogram.count);
        }
    }
    last.into_values().sum::<u64>() as f64
}

/// Returns true if a line has a point of a container with this prefix.
fn speaks_of(line: &Line, prefix: &str) -> bool {
    line.points.iter().any(|point| point.resource.get("container.id").is_some_and(|id| id.starts_with(prefix)))
}

fn lost(line: &Line) -> [f64; REASONS.len()] {
    REASONS.map(|reason| line.total(LOST, &[("undercurrent.signal", "workloads"), ("undercurrent.reason", reason)]))
}

#[test]
fn containers_that_come_and_go_leave_nothing_behind() {
    let Some(_alone) = alone("churn") else { return };
    let Ok(churn) = Churn::prepare() else { return skip("churn: cgroups cannot be made here") };
    let sidecar = Sidecar::start(often());
    let before = sidecar.snapshot();
    if served_by(&before, "cgroup_change").is_none() {
        return skip("churn: this kernel does not tell of cgroups that come and go");
    }
    // By fentry `transport` knows no socket, and these containers are in the node's namespace.
    let layer = match served_by(&before, "socket_enqueued") {
        Some(_) => "socket_enqueued",
        None => "transport",
    };
    let descriptors = sidecar.descriptors();
    let (lives, a_minute) = if virtual_machine().is_some() { (60, 200) } else { (300, 1500) };
    // Half of this is enough to detect a container on a shared machine.
    let shortest = patience(Duration::from_millis(300));
    let datagrams = churn.run(lives, Duration::from_secs(60) / a_minute, shortest).unwrap();
    let after = wait_for("all slots to be free", patience(Duration::from_secs(20)), || {
        Some(sidecar.snapshot()).filter(|line| !speaks_of(line, &churn.prefix()))
    });
    let counted = received(&sidecar.lines(), layer, &churn.prefix());
    assert_eq!(counted, f64::from(datagrams), "each datagram under its container");
    assert_eq!(lost(&after), lost(&before), "by {REASONS:?}");
    assert_eq!(
        after.find(DURATION, &[]).filter(|point| point.resource.contains_key("otel.metric.overflow")).count(),
        0
    );
    assert!(sidecar.descriptors() <= descriptors, "{} descriptors, {descriptors} before", sidecar.descriptors());
    sidecar.stop();
}
