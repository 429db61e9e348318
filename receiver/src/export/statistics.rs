//! What an output did, counted.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Totals of one output since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Points delivered and accepted.
    pub points: u64,
    /// Failed deliveries by reason: a gRPC status code or a system error, in lower snake case.
    pub failures: BTreeMap<&'static str, u64>,
    /// Points that the receiver refused out of deliveries it accepted otherwise.
    pub rejected_points: u64,
    /// Snapshots given up for a newer one, or at the end.
    pub dropped_snapshots: u64,
    /// Time spent on the last snapshot delivered, without the waits between tries.
    pub last_duration: Option<Duration>,
}

/// A handle on an output's totals, cheap to clone; the output goes on counting behind it.
#[derive(Clone, Debug)]
pub struct Statistics {
    output: &'static str,
    totals: Arc<Mutex<Totals>>,
}

impl Statistics {
    pub(super) fn new(output: &'static str) -> Self {
        Self { output, totals: Arc::default() }
    }

    /// Which output counts here: `otlp`, `json` or `table`.
    #[must_use]
    pub fn output(&self) -> &'static str {
        self.output
    }

    /// The totals so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.lock().clone()
    }

    pub(super) fn accepted(&self, points: u64) {
        self.lock().points += points;
    }

    pub(super) fn rejected(&self, points: u64) {
        self.lock().rejected_points += points;
    }

    pub(super) fn delivered(&self, duration: Duration) {
        self.lock().last_duration = Some(duration);
    }

    pub(super) fn failed(&self, reason: &'static str) {
        *self.lock().failures.entry(reason).or_default() += 1;
    }

    pub(super) fn dropped(&self) {
        self.lock().dropped_snapshots += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
