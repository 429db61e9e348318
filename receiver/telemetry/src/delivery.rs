//! Delivery statistics of an output.

use std::collections::BTreeMap;

use super::{ExponentialHistogram, UnixNanos};

/// The reason of a failure in lower snake case: a gRPC status code, a system error, or `rejected`. `None` for success.
pub type ErrorType = Option<&'static str>;

/// The delivery statistics of one output since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delivery {
    /// Points with a finished export, by outcome. Points of a snapshot that is retried are not finished.
    pub points: BTreeMap<ErrorType, u64>,
    /// Spans with a finished export, by outcome.
    pub spans: BTreeMap<ErrorType, u64>,
    /// Records of the sidecar's own log with a finished export, by outcome.
    pub logs: BTreeMap<ErrorType, u64>,
    /// Spans dropped because the output was too slow.
    pub dropped_spans: u64,
    /// Durations of finished exports, by outcome. An export is one snapshot with all attempts and the waits between
    /// them.
    pub exports: BTreeMap<ErrorType, ExponentialHistogram>,
    /// Snapshots dropped at the end of the process, or because a newer snapshot replaced them.
    pub dropped_snapshots: u64,
    /// Time of the newest settled snapshot, which was delivered or finally rejected. Replaced snapshots and snapshots
    /// that will be retried are not settled.
    pub settled: Option<UnixNanos>,
}

impl Delivery {
    /// Returns the number of points with an outcome.
    #[must_use]
    pub fn points(&self, outcome: ErrorType) -> u64 {
        self.points.get(&outcome).copied().unwrap_or(0)
    }

    /// Returns the number of snapshots with an outcome.
    #[must_use]
    pub fn snapshots(&self, outcome: ErrorType) -> u64 {
        self.exports.get(&outcome).map_or(0, ExponentialHistogram::count)
    }
}
