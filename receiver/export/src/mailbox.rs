//! A mailbox with room for one snapshot and some spans. Snapshots are cumulative, so only the newest is delivered.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::mpsc;

use super::Statistics;
use crate::telemetry::{Snapshot, SpanBatch};

/// Most spans in a mailbox.
const SPANS: u64 = 4096;

#[derive(Default)]
struct Pending {
    snapshot: Option<Arc<Snapshot>>,
    spans: VecDeque<Arc<SpanBatch>>,
}

type Slot = Arc<Mutex<Pending>>;

/// The sender of a mailbox. Clones share it.
#[derive(Clone)]
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

/// A snapshot or spans.
pub(super) enum Mail {
    Snapshot(Arc<Snapshot>),
    Spans(Arc<SpanBatch>),
}

/// Creates a mailbox. A snapshot that is replaced before it is received counts as dropped, and so do spans without room.
pub(super) fn mailbox(statistics: Statistics) -> (Mailbox, Inbox) {
    let slot = Slot::default();
    let (sender, receiver) = mpsc::channel(1);
    (Mailbox { slot: Arc::clone(&slot), bell: sender, statistics }, Inbox { slot, bell: receiver })
}

impl Mailbox {
    /// Stores a snapshot, and replaces one that was not received.
    pub(super) fn put(&self, snapshot: Arc<Snapshot>) {
        let replaced = lock(&self.slot).snapshot.replace(snapshot);
        if replaced.is_some() {
            self.statistics.dropped();
        }
        self.ring();
    }

    /// Appends spans, or drops them if there is no room.
    pub(super) fn put_spans(&self, batch: &Arc<SpanBatch>) {
        let mut pending = lock(&self.slot);
        let waiting: u64 = pending.spans.iter().map(|batch| batch.spans()).sum();
        if waiting + batch.spans() > SPANS {
            self.statistics.dropped_spans(batch.spans());
            return;
        }
        pending.spans.push_back(Arc::clone(batch));
        drop(pending);
        self.ring();
    }

    /// A full channel still wakes the receiver, which then takes all that is new.
    fn ring(&self) {
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
        self.wait(|pending| pending.snapshot.take()).await
    }

    /// Waits for the oldest spans that were not received yet. Returns `None` if the sender was dropped. Cancel safe.
    pub(super) async fn next_spans(&mut self) -> Option<Arc<SpanBatch>> {
        self.wait(|pending| pending.spans.pop_front()).await
    }

    async fn wait<T>(&mut self, take: impl Fn(&mut Pending) -> Option<T>) -> Option<T> {
        loop {
            let taken = take(&mut lock(&self.slot));
            if taken.is_some() {
                return taken;
            }
            if self.bell.recv().await.is_none() {
                return take(&mut lock(&self.slot));
            }
        }
    }

    /// Blocks the thread until there is mail; spans come first.
    pub(super) fn blocking_next(&mut self) -> Option<Mail> {
        loop {
            let mail = self.take();
            if mail.is_some() {
                return mail;
            }
            if self.bell.blocking_recv().is_none() {
                return self.take();
            }
        }
    }

    fn take(&self) -> Option<Mail> {
        let mut pending = lock(&self.slot);
        pending.spans.pop_front().map(Mail::Spans).or_else(|| pending.snapshot.take().map(Mail::Snapshot))
    }
}

fn lock(slot: &Slot) -> MutexGuard<'_, Pending> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        telemetry::UnixNanos,
        testing::{after, batch, lost},
    };

    #[tokio::test]
    async fn spans_keep_their_order_and_snapshots_replace_each_other() {
        let statistics = Statistics::new("test");
        let (mailbox, mut inbox) = mailbox(statistics.clone());
        let [one, other] = [1, 2].map(|spans| Arc::new(batch(spans)));
        mailbox.put_spans(&one);
        mailbox.put(lost(1, after(1)));
        mailbox.put_spans(&other);
        mailbox.put(lost(1, after(2)));
        assert_eq!(inbox.next_spans().await.map(|batch| batch.spans()), Some(1));
        assert_eq!(inbox.next().await.map(|snapshot| snapshot.time), Some(after(2)));
        drop(mailbox);
        assert_eq!(inbox.next_spans().await.map(|batch| batch.spans()), Some(2));
        assert!(inbox.next_spans().await.is_none() && inbox.next().await.is_none());
        assert_eq!(statistics.totals().dropped_snapshots, 1);
        assert_eq!(statistics.totals().settled, None::<UnixNanos>);
    }

    #[test]
    fn spans_without_room_are_dropped_and_counted() {
        let statistics = Statistics::new("test");
        let (mailbox, mut inbox) = mailbox(statistics.clone());
        let large = Arc::new(batch(3_000));
        mailbox.put_spans(&large);
        mailbox.put_spans(&large);
        mailbox.put_spans(&Arc::new(batch(1_000)));
        drop(mailbox);
        let received = std::iter::from_fn(|| inbox.blocking_next()).map(|mail| match mail {
            Mail::Spans(batch) => batch.spans(),
            Mail::Snapshot(_) => 0,
        });
        assert_eq!(received.collect::<Vec<_>>(), [3_000, 1_000]);
        assert_eq!(statistics.totals().dropped_spans, 3_000);
    }
}
