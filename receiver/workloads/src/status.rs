//! The status of attribution on this host.

use crate::{
    kernel::{
        Kernel, hooks,
        plan::{SignalStatus, Status},
    },
    options::Workloads as Settings,
};

/// The name in status, logs and losses.
pub const NAME: &str = "workloads";

/// The cgroup of a socket's creator on cgroup v2.
pub const SOCKET_CGROUP: &str = "sock.sk_cgrp_data.cgroup";

/// Returns the status of attribution, with the reasons for a degradation.
#[must_use]
pub fn status(settings: &Settings, kernel: &Kernel) -> SignalStatus {
    let of = |status, reasons| SignalStatus { signal: NAME, status, enabled: settings.enabled, reasons };
    if !settings.enabled {
        return of(Status::Unavailable, vec!["switched off by the configuration".to_owned()]);
    }
    let Some(hierarchy) = kernel.host().hierarchy.as_ref().filter(|_| kernel.by_workload()) else {
        let cure = "no cgroups are mounted here: give the sidecar the host's /sys/fs/cgroup".to_owned();
        return of(Status::Unavailable, vec![cure]);
    };
    let mut reasons: Vec<String> = hierarchy.partial().into_iter().collect();
    let outcomes = kernel.outcomes().iter().filter(|outcome| outcome.status == Status::Unavailable);
    let absent = outcomes.filter_map(|outcome| missing(&outcome.hook)).map(str::to_owned);
    reasons.extend(absent);
    if !kernel.stores_readers() {
        reasons.push("before Linux 5.11 the reader of a socket is unknown, and its creator is used".to_owned());
    }
    if kernel.lacks(SOCKET_CGROUP) {
        reasons.push("before Linux 5.15 enqueued data have no workload until the socket is read".to_owned());
    }
    if kernel.probes(&hooks::SOCKET_ENQUEUED) {
        reasons.push(
            "with kprobes, enqueued data count with the creator of the socket, which only cgroup v2 identifies"
                .to_owned(),
        );
    }
    if kernel.is_served_by(&hooks::DATAGRAM_READER, hooks::CGROUP_READ) {
        reasons.push("a UDP socket that is read without the sender's address counts for its creator".to_owned());
    }
    of(if reasons.is_empty() { Status::Healthy } else { Status::Degraded }, reasons)
}

/// Returns the effect of an unavailable hook.
fn missing(hook: &str) -> Option<&'static str> {
    let without = [
        (&hooks::DATAGRAM_READER, "the reader of a socket is unknown, and its creator is used"),
        (&hooks::SOCKET_READER, "the reader of a socket is unknown, and its creator is used"),
        (&hooks::SOCKET_CREATOR, "a socket has no workload until it is read"),
        (&hooks::CGROUP_CHANGE, "new and removed cgroups are detected by a scan every second"),
    ];
    without.into_iter().find(|(known, _)| known.name == hook).map(|(_, without)| without)
}
