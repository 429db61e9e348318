//! Delivery statistics of an output.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::telemetry::{Delivery, ErrorType, ExponentialHistogram, Exporters, Scale, UnixNanos};

/// A handle for the totals of an output. Clones are cheap and share the totals.
#[derive(Clone, Debug)]
pub struct Statistics {
    output: &'static str,
    is_read: bool,
    totals: Arc<Mutex<Delivery>>,
}

impl Statistics {
    pub(super) fn new(output: &'static str) -> Self {
        let totals = Delivery { exporters: Exporters::of_output(output), ..Delivery::default() };
        Self { output, is_read: false, totals: Arc::new(totals.into()) }
    }

    /// Returns the statistics of an output that readers fetch.
    pub(super) fn of_readers(output: &'static str) -> Self {
        Self { is_read: true, ..Self::new(output) }
    }

    /// Returns true if readers fetch the snapshots of the output.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    /// Changes the exporters of the output.
    pub(super) fn exporters(&self, change: impl FnOnce(&mut Exporters)) {
        change(&mut self.lock().exporters);
    }

    /// Returns the name of the output: `otlp`, `json`, `table` or `listen`.
    #[must_use]
    pub fn output(&self) -> &'static str {
        self.output
    }

    /// Returns the current totals.
    #[must_use]
    pub fn totals(&self) -> Delivery {
        self.lock().clone()
    }

    /// Counts points with a finished export.
    pub(super) fn points(&self, outcome: ErrorType, points: u64) {
        if points > 0 {
            *self.lock().points.entry(outcome).or_default() += points;
        }
    }

    /// Counts spans with a finished export.
    pub(super) fn spans(&self, outcome: ErrorType, spans: u64) {
        if spans > 0 {
            *self.lock().spans.entry(outcome).or_default() += spans;
        }
    }

    /// Counts log records with a finished export.
    pub(super) fn logs(&self, outcome: ErrorType, records: u64) {
        if records > 0 {
            *self.lock().logs.entry(outcome).or_default() += records;
        }
    }

    /// Counts spans that were dropped because the receiver is too slow.
    pub(super) fn count_dropped_spans(&self, spans: u64) {
        self.lock().dropped_spans += spans;
    }

    /// Counts the finished export of a snapshot.
    pub(super) fn exported(&self, outcome: ErrorType, duration: Duration) {
        let one = ExponentialHistogram::from_duration(Scale::DEFAULT, duration);
        let mut totals = self.lock();
        totals.exports.entry(outcome).and_modify(|all| all.add(&one)).or_insert(one);
        totals.last = Some(outcome);
    }

    pub(super) fn settled(&self, time: UnixNanos) {
        self.lock().settled = Some(time);
    }

    pub(super) fn count_dropped_snapshot(&self) {
        self.lock().dropped_snapshots += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Delivery> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
