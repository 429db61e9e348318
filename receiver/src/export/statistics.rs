//! What an output did, counted.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::telemetry::{Delivery, UnixNanos};

/// A handle on an output's totals, cheap to clone; the output goes on counting behind it.
#[derive(Clone, Debug)]
pub struct Statistics {
    output: &'static str,
    totals: Arc<Mutex<Delivery>>,
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
