//! Delivery statistics of an output.

use std::{collections::BTreeMap, time::Duration};

use super::UnixNanos;

/// The delivery statistics of one output since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Points delivered and accepted.
    pub points: u64,
    /// Failed deliveries by reason: a gRPC status code or a system error, in lower snake case.
    pub failures: BTreeMap<&'static str, u64>,
    /// Points that the receiver rejected in deliveries that it otherwise accepted.
    pub rejected_points: u64,
    /// Snapshots dropped at the end of the process, or because a newer snapshot replaced them.
    pub dropped_snapshots: u64,
    /// Time of the newest settled snapshot, which was delivered or finally rejected. Replaced snapshots and snapshots
    /// that will be retried are not settled.
    pub settled: Option<UnixNanos>,
    /// Duration of the last successful delivery, without the waits between retries.
    pub last_duration: Option<Duration>,
}
