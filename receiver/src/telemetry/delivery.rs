//! What became of snapshots.

use std::{collections::BTreeMap, time::Duration};

use super::UnixNanos;

/// What one output did since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Points delivered and accepted.
    pub points: u64,
    /// Failed deliveries by reason: a gRPC status code or a system error, in lower snake case.
    pub failures: BTreeMap<&'static str, u64>,
    /// Points that the receiver refused out of deliveries it accepted otherwise.
    pub rejected_points: u64,
    /// Snapshots given up for a newer one, or at the end.
    pub dropped_snapshots: u64,
    /// Time of the newest snapshot that is settled: delivered, or refused for good. One that a newer one replaced, or that
    /// the receiver may take at a later try, is not.
    pub settled: Option<UnixNanos>,
    /// Time spent on the last snapshot delivered, without the waits between tries.
    pub last_duration: Option<Duration>,
}
