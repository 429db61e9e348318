//! Counters of lookups.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{Reason, Unknown, source::Api};

/// Totals since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Accepted lookups.
    pub questions: u64,
    /// Lookups that were rejected because the queue of the user, or of the system, was full.
    pub queue_full: u64,
    /// Successful lookups.
    pub known: u64,
    /// Failed lookups, by [`Unknown::as_str`].
    pub unknown: BTreeMap<&'static str, u64>,
    /// Failed calls, by source (`docker`, `cri`, `containerd`, `kubernetes`) and [`Reason::as_str`].
    pub failures: BTreeMap<(&'static str, &'static str), u64>,
    /// Texts, labels and annotations that were dropped because of the size limits.
    pub left_out: u64,
}

/// Shared counters.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<Statistics>);

impl Counters {
    pub(super) fn totals(&self) -> Statistics {
        self.lock().clone()
    }

    pub(super) fn lookup(&self) {
        self.lock().questions += 1;
    }

    pub(super) fn queue_full(&self) {
        self.lock().queue_full += 1;
    }

    pub(super) fn known(&self, left_out: u64) {
        let mut totals = self.lock();
        totals.known += 1;
        totals.left_out += left_out;
    }

    pub(super) fn unknown(&self, unknown: Unknown) {
        *self.lock().unknown.entry(unknown.as_str()).or_default() += 1;
    }

    pub(super) fn failure(&self, api: Api, reason: Reason) {
        *self.lock().failures.entry((api.as_str(), reason.as_str())).or_default() += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Statistics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
