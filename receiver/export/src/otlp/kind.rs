//! Kinds of telemetry: how each is received, divided into requests and counted.

use std::{sync::Arc, time::Duration};

use prost::bytes::Bytes;

use crate::{
    Statistics,
    acknowledged::{CollectorState, PointIndex},
    bus::Subscription,
    encoding::Encoding,
    spans::requests,
    split::requests_in,
    telemetry::{ErrorType, Snapshot, SpanBatch},
};

/// An encoded request.
pub(super) struct Encoded {
    pub(super) bytes: Bytes,
    /// The number of items in the request.
    pub(super) items: u64,
    /// The indices of the items in the batch, if the kind records their acknowledgement.
    pub(super) indices: Vec<PointIndex>,
}

/// A kind of telemetry.
pub(super) trait Kind: Send + Sync + 'static {
    /// The unit that is delivered or lost as a whole.
    type Batch: Send + Sync + 'static;
    /// Most attempts to deliver a batch. `None`: the attempts end when a newer batch replaces this one.
    const ATTEMPTS: Option<u32>;

    /// Waits for the next batch. Returns `None` if there will be no further batch. Cancel safe.
    fn next(subscription: &mut Subscription) -> impl Future<Output = Option<Arc<Self::Batch>>> + Send;

    /// Returns the number of items in a batch.
    fn items(batch: &Self::Batch) -> u64;

    /// Returns the requests of a batch. The iterator encodes each request when it is needed.
    fn requests(&self, batch: &Self::Batch, encoding: Encoding) -> impl Iterator<Item = Encoded> + Send;

    /// Records that the collector accepted these items.
    fn acknowledge(&self, _: &Self::Batch, _: &[PointIndex]) {}

    /// Records that no request of a batch follows.
    fn end(&self, _: &Self::Batch) {}

    /// Counts items with a final outcome.
    fn count(statistics: &Statistics, outcome: ErrorType, items: u64);

    /// Records the final outcome of a batch: `None` if the collector accepted every item.
    fn finish(batch: &Self::Batch, outcome: ErrorType, duration: Duration, statistics: &Statistics);

    /// Records a batch without a further attempt. Its items are counted already.
    fn give_up(reason: &'static str, duration: Duration, statistics: &Statistics);
}

/// Metrics. Values are cumulative, or count since the last acknowledgement, so the newest snapshot replaces an undelivered one.
pub(super) struct Metrics(pub(super) CollectorState);

impl Kind for Metrics {
    type Batch = Snapshot;
    const ATTEMPTS: Option<u32> = None;

    async fn next(subscription: &mut Subscription) -> Option<Arc<Snapshot>> {
        subscription.snapshot().await
    }

    fn items(batch: &Snapshot) -> u64 {
        batch.points()
    }

    fn requests(&self, batch: &Snapshot, encoding: Encoding) -> impl Iterator<Item = Encoded> + Send {
        requests_in(batch, encoding.request_limit(), self.0.clone()).map(move |part| Encoded {
            bytes: encoding.encode(&part.request),
            items: part.points,
            indices: part.indices,
        })
    }

    fn acknowledge(&self, batch: &Snapshot, items: &[PointIndex]) {
        self.0.acknowledge(batch, items);
    }

    fn end(&self, batch: &Snapshot) {
        self.0.finish(batch);
    }

    fn count(statistics: &Statistics, outcome: ErrorType, items: u64) {
        statistics.points(outcome, items);
    }

    fn finish(batch: &Snapshot, outcome: ErrorType, duration: Duration, statistics: &Statistics) {
        statistics.settled(batch.time);
        statistics.exported(outcome, duration);
    }

    fn give_up(reason: &'static str, duration: Duration, statistics: &Statistics) {
        statistics.exported(Some(reason), duration);
        statistics.count_dropped_snapshot();
    }
}

/// Spans. Later batches wait until the attempts for one end.
pub(super) struct Spans;

impl Kind for Spans {
    type Batch = SpanBatch;
    const ATTEMPTS: Option<u32> = Some(5);

    async fn next(subscription: &mut Subscription) -> Option<Arc<SpanBatch>> {
        subscription.spans().await
    }

    fn items(batch: &SpanBatch) -> u64 {
        batch.spans()
    }

    fn requests(&self, batch: &SpanBatch, encoding: Encoding) -> impl Iterator<Item = Encoded> + Send {
        requests(batch, encoding.request_limit()).map(move |(request, items)| Encoded {
            bytes: encoding.encode(&request),
            items,
            indices: Vec::new(),
        })
    }

    fn count(statistics: &Statistics, outcome: ErrorType, items: u64) {
        statistics.spans(outcome, items);
    }

    fn finish(batch: &SpanBatch, outcome: ErrorType, _: Duration, _: &Statistics) {
        if outcome.is_none() {
            batch.accept();
        }
    }

    fn give_up(_: &'static str, _: Duration, _: &Statistics) {}
}
