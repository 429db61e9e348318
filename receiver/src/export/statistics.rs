//! Delivery statistics of an output.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::telemetry::{Delivery, UnixNanos};

/// A handle for the totals of an output. Clones are cheap and share the totals.
#[derive(Clone, Debug)]
pub struct Statistics {
    output: &'static str,
    totals: Arc<Mutex<Delivery>>,
}

impl Statistics {
    pub(super) fn new(output: &'static str) -> Self {
        Self { output, totals: Arc::default() }
    }

    /// Returns the name of the output: `otlp`, `json` or `table`.
    #[must_use]
    pub fn output(&self) -> &'static str {
        self.output
    }

    /// Returns the current totals.
    #[must_use]
    pub fn totals(&self) -> Delivery {
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

    pub(super) fn settled(&self, time: UnixNanos) {
        self.lock().settled = Some(time);
    }

    pub(super) fn failed(&self, reason: &'static str) {
        *self.lock().failures.entry(reason).or_default() += 1;
    }

    pub(super) fn dropped(&self) {
        self.lock().dropped_snapshots += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Delivery> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
