//! Kinds of telemetry: how each is received, divided into requests and counted.

use std::{sync::Arc, time::Duration};

use opentelemetry_proto::tonic::collector::{
    metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest,
};

use super::{
    client::{Client, Reply},
    failure::Failure,
};
use crate::{
    REQUEST_LIMIT, Statistics,
    mailbox::Inbox,
    spans::request,
    split::requests,
    telemetry::{ErrorType, Snapshot, SpanBatch},
};

/// A kind of telemetry.
pub(super) trait Kind: Send + 'static {
    /// The unit that is delivered or lost as a whole.
    type Batch: Send + Sync + 'static;
    /// The message of the collector's service.
    type Request: Clone + Send + Sync;
    /// The name of the counted items.
    const COUNTED: &'static str;
    /// Most attempts to deliver a batch. `None`: the attempts end when a newer batch replaces this one.
    const ATTEMPTS: Option<u32>;

    /// Waits for the next batch. Returns `None` if there will be no further batch. Cancel safe.
    fn next(inbox: &mut Inbox) -> impl Future<Output = Option<Arc<Self::Batch>>> + Send;

    /// Returns the number of items in a batch.
    fn items(batch: &Self::Batch) -> u64;

    /// Returns the requests of a batch, each with its number of items. The iterator builds each request when it is
    /// needed.
    fn requests(batch: &Self::Batch) -> impl Iterator<Item = (Self::Request, u64)> + Send;

    /// Sends a request once.
    fn send(client: &mut Client, request: Self::Request) -> impl Future<Output = Result<Reply, Failure>> + Send;

    /// Counts items with a final outcome.
    fn count(statistics: &Statistics, outcome: ErrorType, items: u64);

    /// Records a batch of which every item has a final outcome: `None` if the collector accepted them all.
    fn finish(batch: &Self::Batch, outcome: ErrorType, duration: Duration, statistics: &Statistics);

    /// Records a batch without a further attempt. Its items are counted already.
    fn give_up(reason: &'static str, duration: Duration, statistics: &Statistics);
}

/// Metrics. Values are cumulative, so the newest snapshot replaces an undelivered one.
pub(super) struct Metrics;

impl Kind for Metrics {
    type Batch = Snapshot;
    type Request = ExportMetricsServiceRequest;
    const COUNTED: &'static str = "points";
    const ATTEMPTS: Option<u32> = None;

    async fn next(inbox: &mut Inbox) -> Option<Arc<Snapshot>> {
        inbox.next().await
    }

    fn items(batch: &Snapshot) -> u64 {
        batch.points()
    }

    fn requests(batch: &Snapshot) -> impl Iterator<Item = (Self::Request, u64)> + Send {
        requests(batch, REQUEST_LIMIT).map(|part| (part.request, part.points))
    }

    async fn send(client: &mut Client, request: Self::Request) -> Result<Reply, Failure> {
        client.metrics(request).await
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
        statistics.dropped();
    }
}

/// Spans. Later batches wait until the attempts for one end.
pub(super) struct Spans;

impl Kind for Spans {
    type Batch = SpanBatch;
    type Request = ExportTraceServiceRequest;
    const COUNTED: &'static str = "spans";
    const ATTEMPTS: Option<u32> = Some(5);

    async fn next(inbox: &mut Inbox) -> Option<Arc<SpanBatch>> {
        inbox.next_spans().await
    }

    fn items(batch: &SpanBatch) -> u64 {
        batch.spans()
    }

    fn requests(batch: &SpanBatch) -> impl Iterator<Item = (Self::Request, u64)> + Send {
        std::iter::once_with(|| (request(batch), batch.spans()))
    }

    async fn send(client: &mut Client, request: Self::Request) -> Result<Reply, Failure> {
        client.spans(request).await
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
