//! A mailbox for one snapshot: cumulative data make the newest the only one worth delivering.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use super::Statistics;
use crate::telemetry::Snapshot;

type Slot = Arc<Mutex<Option<Arc<Snapshot>>>>;

/// The sending end.
pub(super) struct Mailbox {
    slot: Slot,
    bell: mpsc::Sender<()>,
    statistics: Statistics,
}

/// The receiving end, for a task or a thread.
pub(super) struct Inbox {
    slot: Slot,
    bell: mpsc::Receiver<()>,
}

/// Both ends. A snapshot that a newer one replaces before it was taken is counted as dropped.
pub(super) fn mailbox(statistics: Statistics) -> (Mailbox, Inbox) {
    let slot = Slot::default();
    let (sender, receiver) = mpsc::channel(1);
    (Mailbox { slot: Arc::clone(&slot), bell: sender, statistics }, Inbox { slot, bell: receiver })
}

impl Mailbox {
    /// Leaves a snapshot.
    pub(super) fn put(&self, snapshot: Arc<Snapshot>) {
        let replaced = lock(&self.slot).replace(snapshot);
        if replaced.is_some() {
            self.statistics.dropped();
        }
        // A full channel is a bell that still rings: whoever hears it takes the newer snapshot.
        let _ = self.bell.try_send(());
    }

    /// Whether nobody takes any more.
    pub(super) fn is_closed(&self) -> bool {
        self.bell.is_closed()
    }
}

impl Inbox {
    /// The newest snapshot as soon as there is one not yet taken; `None` when none will come. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Arc<Snapshot>> {
        while self.bell.recv().await.is_some() {
            let taken = lock(&self.slot).take();
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    /// [`Self::next`] for threads.
    pub(super) fn blocking_next(&mut self) -> Option<Arc<Snapshot>> {
        while self.bell.blocking_recv().is_some() {
            let taken = lock(&self.slot).take();
            if taken.is_some() {
                return taken;
            }
        }
        None
    }
}

fn lock(slot: &Slot) -> std::sync::MutexGuard<'_, Option<Arc<Snapshot>>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
