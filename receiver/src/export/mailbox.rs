//! A mailbox with room for one snapshot. The data is cumulative, so only the newest snapshot is delivered.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use super::Statistics;
use crate::telemetry::Snapshot;

type Slot = Arc<Mutex<Option<Arc<Snapshot>>>>;

/// The sender of a mailbox.
pub(super) struct Mailbox {
    slot: Slot,
    bell: mpsc::Sender<()>,
    statistics: Statistics,
}

/// The receiver of a mailbox, for a task or a thread.
pub(super) struct Inbox {
    slot: Slot,
    bell: mpsc::Receiver<()>,
}

/// Creates a mailbox. A snapshot that is replaced before it is received counts as dropped.
pub(super) fn mailbox(statistics: Statistics) -> (Mailbox, Inbox) {
    let slot = Slot::default();
    let (sender, receiver) = mpsc::channel(1);
    (Mailbox { slot: Arc::clone(&slot), bell: sender, statistics }, Inbox { slot, bell: receiver })
}

impl Mailbox {
    /// Stores a snapshot, and replaces one that was not received.
    pub(super) fn put(&self, snapshot: Arc<Snapshot>) {
        let replaced = lock(&self.slot).replace(snapshot);
        if replaced.is_some() {
            self.statistics.dropped();
        }
        // A full channel still wakes the receiver, which then takes the newer snapshot.
        let _ = self.bell.try_send(());
    }

    /// Returns true if the receiver was dropped.
    pub(super) fn is_closed(&self) -> bool {
        self.bell.is_closed()
    }
}

impl Inbox {
    /// Waits for the newest snapshot that was not received yet. Returns `None` if the sender was dropped. Cancel
    /// safe.
    pub(super) async fn next(&mut self) -> Option<Arc<Snapshot>> {
        while self.bell.recv().await.is_some() {
            let taken = lock(&self.slot).take();
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    /// Blocks the thread like [`Self::next`].
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
