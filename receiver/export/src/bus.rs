//! Distributes snapshots and spans to subscribers.
//!
//! Publishing never waits. Snapshots are cumulative, so a slow subscriber receives only the newest one. Spans wait in a queue with a
//! limit. Each subscriber counts its own losses.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::mpsc;

use crate::{
    Statistics,
    telemetry::{Snapshot, SpanBatch},
};

/// Most spans that wait for a subscriber.
const SPANS: u64 = 4096;

/// The bus of all outputs. Clones share it.
#[derive(Clone, Default)]
pub struct Bus(Arc<Mutex<Subscribers>>);

#[derive(Default)]
struct Subscribers {
    senders: Vec<Sender>,
    is_closed: bool,
}

/// The data that a subscriber receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topics {
    snapshots: bool,
    spans: bool,
    /// True if exemplars wait until the subscriber has accepted their spans.
    accepts: bool,
}

impl Topics {
    /// Snapshots.
    pub const SNAPSHOTS: Self = Self { snapshots: true, spans: false, accepts: false };
    /// Spans. The subscriber accepts each batch after its export.
    pub const SPANS: Self = Self { snapshots: false, spans: true, accepts: true };
    /// Snapshots, and spans that the subscriber accepts.
    pub const ALL: Self = Self { snapshots: true, ..Self::SPANS };
    /// Snapshots and spans for people. The subscriber exports no spans.
    pub const SHOWN: Self = Self { accepts: false, ..Self::ALL };
}

/// Snapshots or spans from the bus.
#[derive(Debug)]
pub enum Published {
    /// The newest snapshot.
    Snapshot(Arc<Snapshot>),
    /// The oldest spans that wait.
    Spans(Arc<SpanBatch>),
}

impl Bus {
    /// Subscribes a task or a thread. A snapshot that is replaced before it is received counts as dropped, and so do spans
    /// that exceed the limit of the queue. Dropping the subscription ends it.
    #[must_use]
    pub fn subscribe(&self, topics: Topics, statistics: &Statistics) -> Subscription {
        let pending = Arc::default();
        let (wake, woken) = mpsc::channel(1);
        let mut subscribers = lock(&self.0);
        if !subscribers.is_closed {
            let (pending, statistics) = (Arc::clone(&pending), statistics.clone());
            subscribers.senders.push(Sender { topics, pending, wake, statistics });
        }
        Subscription { pending, woken }
    }

    /// Passes a snapshot to each subscriber, without waiting.
    pub fn publish(&self, snapshot: &Arc<Snapshot>) {
        let subscribers = self.running();
        subscribers.senders.iter().filter(|sender| sender.topics.snapshots).for_each(|sender| sender.put(snapshot));
    }

    /// Passes spans to each subscriber, without waiting. Returns the number of subscribers that accept spans after their
    /// export.
    pub fn publish_spans(&self, batch: &Arc<SpanBatch>) -> usize {
        let subscribers = self.running();
        let of_spans = || subscribers.senders.iter().filter(|sender| sender.topics.spans);
        of_spans().for_each(|sender| sender.put_spans(batch));
        of_spans().filter(|sender| sender.topics.accepts).count()
    }

    /// Ends all subscriptions after the data that already waits, and all later ones at once.
    pub fn close(&self) {
        *lock(&self.0) = Subscribers { senders: Vec::new(), is_closed: true };
    }

    /// Removes ended subscriptions, and returns the others.
    fn running(&self) -> MutexGuard<'_, Subscribers> {
        let mut subscribers = lock(&self.0);
        subscribers.senders.retain(|sender| !sender.wake.is_closed());
        subscribers
    }
}

#[derive(Default)]
struct Pending {
    snapshot: Option<Arc<Snapshot>>,
    spans: VecDeque<Arc<SpanBatch>>,
}

impl Pending {
    fn take(&mut self) -> Option<Published> {
        let spans = self.spans.pop_front().map(Published::Spans);
        spans.or_else(|| self.snapshot.take().map(Published::Snapshot))
    }
}

/// The end of a subscription at the bus.
struct Sender {
    topics: Topics,
    pending: Arc<Mutex<Pending>>,
    wake: mpsc::Sender<()>,
    statistics: Statistics,
}

impl Sender {
    /// Stores a snapshot, and replaces one that was not received.
    fn put(&self, snapshot: &Arc<Snapshot>) {
        let replaced = lock(&self.pending).snapshot.replace(Arc::clone(snapshot));
        if replaced.is_some() {
            self.statistics.count_dropped_snapshot();
        }
        self.wake();
    }

    /// Appends spans, or drops them if they exceed the limit.
    fn put_spans(&self, batch: &Arc<SpanBatch>) {
        let mut pending = lock(&self.pending);
        let waiting: u64 = pending.spans.iter().map(|batch| batch.spans()).sum();
        if waiting + batch.spans() > SPANS {
            self.statistics.count_dropped_spans(batch.spans());
            return;
        }
        pending.spans.push_back(Arc::clone(batch));
        drop(pending);
        self.wake();
    }

    /// A full channel still wakes the receiver, which then takes all that is new.
    fn wake(&self) {
        let _ = self.wake.try_send(());
    }
}

/// A subscription, for a task or a thread.
pub struct Subscription {
    pending: Arc<Mutex<Pending>>,
    woken: mpsc::Receiver<()>,
}

impl Subscription {
    /// Waits for the newest snapshot that was not received yet. Returns `None` after the bus was closed. Cancel safe.
    pub async fn snapshot(&mut self) -> Option<Arc<Snapshot>> {
        self.wait(|pending| pending.snapshot.take()).await
    }

    /// Waits for the oldest spans that were not received yet. Returns `None` after the bus was closed. Cancel safe.
    pub async fn spans(&mut self) -> Option<Arc<SpanBatch>> {
        self.wait(|pending| pending.spans.pop_front()).await
    }

    /// Waits until there are spans or a snapshot; spans come first. Returns `None` after the bus was closed. Cancel safe.
    pub async fn next(&mut self) -> Option<Published> {
        self.wait(Pending::take).await
    }

    async fn wait<T>(&mut self, take: impl Fn(&mut Pending) -> Option<T>) -> Option<T> {
        loop {
            let taken = take(&mut lock(&self.pending));
            if taken.is_some() {
                return taken;
            }
            if self.woken.recv().await.is_none() {
                return take(&mut lock(&self.pending));
            }
        }
    }

    /// Blocks the thread until there are spans or a snapshot; spans come first. Returns `None` after the bus was closed.
    pub fn blocking_next(&mut self) -> Option<Published> {
        loop {
            let published = self.take();
            if published.is_some() {
                return published;
            }
            if self.woken.blocking_recv().is_none() {
                return self.take();
            }
        }
    }

    fn take(&self) -> Option<Published> {
        lock(&self.pending).take()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (bus, statistics) = (Bus::default(), Statistics::new("test"));
        let mut subscription = bus.subscribe(Topics::ALL, &statistics);
        let [one, other] = [1, 2].map(|spans| Arc::new(batch(spans)));
        bus.publish_spans(&one);
        bus.publish(&lost(1, after(1)));
        bus.publish_spans(&other);
        bus.publish(&lost(1, after(2)));
        assert_eq!(subscription.spans().await.map(|batch| batch.spans()), Some(1));
        assert_eq!(subscription.snapshot().await.map(|snapshot| snapshot.time), Some(after(2)));
        bus.close();
        assert_eq!(subscription.spans().await.map(|batch| batch.spans()), Some(2));
        assert!(subscription.spans().await.is_none() && subscription.snapshot().await.is_none());
        assert_eq!(statistics.totals().dropped_snapshots, 1);
        assert_eq!(statistics.totals().settled, None::<UnixNanos>);
    }

    #[test]
    fn spans_without_room_are_dropped_and_counted() {
        let (bus, statistics) = (Bus::default(), Statistics::new("test"));
        let mut subscription = bus.subscribe(Topics::SPANS, &statistics);
        let large = Arc::new(batch(3_000));
        bus.publish_spans(&large);
        bus.publish_spans(&large);
        bus.publish_spans(&Arc::new(batch(1_000)));
        bus.close();
        let received = std::iter::from_fn(|| subscription.blocking_next()).map(|published| match published {
            Published::Spans(batch) => batch.spans(),
            Published::Snapshot(_) => 0,
        });
        assert_eq!(received.collect::<Vec<_>>(), [3_000, 1_000]);
        assert_eq!(statistics.totals().dropped_spans, 3_000);
    }

    #[tokio::test]
    async fn a_slow_subscriber_has_its_own_losses() {
        let (bus, [fast, slow]) = (Bus::default(), ["fast", "slow"].map(Statistics::new));
        let [mut quick, mut late] = [&fast, &slow].map(|statistics| bus.subscribe(Topics::SNAPSHOTS, statistics));
        for seconds in 1..=3 {
            bus.publish(&lost(1, after(seconds)));
            assert_eq!(quick.snapshot().await.map(|snapshot| snapshot.time), Some(after(seconds)));
        }
        assert_eq!(late.snapshot().await.map(|snapshot| snapshot.time), Some(after(3)));
        assert_eq!([fast, slow].map(|statistics| statistics.totals().dropped_snapshots), [0, 2]);
    }

    #[tokio::test]
    async fn subscribers_receive_their_topics_until_they_end() {
        let (bus, statistics) = (Bus::default(), Statistics::new("test"));
        bus.publish(&lost(1, after(1)));
        let mut snapshots = bus.subscribe(Topics::SNAPSHOTS, &statistics);
        let exported = bus.subscribe(Topics::SPANS, &statistics);
        let mut shown = bus.subscribe(Topics::SHOWN, &statistics);
        assert_eq!(bus.publish_spans(&Arc::new(batch(1))), 1, "the subscriber for people exports no spans");
        drop(exported);
        assert_eq!(bus.publish_spans(&Arc::new(batch(2))), 0);
        bus.publish(&lost(1, after(2)));
        bus.close();
        bus.publish(&lost(1, after(3)));
        assert_eq!(snapshots.snapshot().await.map(|snapshot| snapshot.time), Some(after(2)));
        assert!(snapshots.spans().await.is_none());
        assert_eq!(shown.spans().await.map(|batch| batch.spans()), Some(1));
        assert!(bus.subscribe(Topics::ALL, &statistics).snapshot().await.is_none(), "the bus is closed");
    }
}
