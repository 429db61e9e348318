//! Tests of the delivery loop with a scripted transport.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    metrics::v1::{metric::Data as Wire, number_data_point::Value},
};
use prost::{Message as _, bytes::Bytes};
use tokio::time::Instant;

use crate::{
    Bus, Statistics, Subscription, Topics,
    acknowledged::CollectorState,
    encoding::Encoding,
    otlp::{
        Form, Items, Temporality,
        delivery::Delivery,
        destination::Destination,
        failure::{Failure, FailureKind, Refusal},
        kind::{Encoded, Kind, Metrics, Spans},
        tests::settings,
        transport::{Reply, Transport},
    },
    telemetry::{Attributes, Data, ErrorType, Metric, Snapshot},
    testing::{LOST, after, batch, lost, node, point},
};

/// The requests of a transport, each with its time.
type Sent = Arc<Mutex<Vec<(Bytes, Instant)>>>;

/// A transport with scripted outcomes. It accepts requests after the end of its script.
struct Scripted {
    destination: Destination,
    outcomes: VecDeque<Result<Reply, Failure>>,
    sent: Sent,
}

impl Scripted {
    fn new(items: Items, outcomes: impl IntoIterator<Item = Result<Reply, Failure>>) -> (Self, Sent) {
        let destination = Destination::new(items, &settings(&[]));
        let sent = Sent::default();
        (Self { destination, outcomes: outcomes.into_iter().collect(), sent: Arc::clone(&sent) }, sent)
    }
}

impl Transport for Scripted {
    fn destination(&self) -> &Destination {
        &self.destination
    }

    fn encoding(&self) -> Encoding {
        Encoding::Protobuf
    }

    async fn send(&mut self, request: Bytes) -> Result<Reply, Failure> {
        self.sent.lock().expect("requests").push((request, Instant::now()));
        self.outcomes.pop_front().unwrap_or_else(|| Ok(Reply::default()))
    }
}

fn failure(kind: FailureKind, delay: Option<u64>) -> Result<Reply, Failure> {
    Err(Failure { delay: delay.map(Duration::from_secs), ..Failure::new(kind, "scripted", "") })
}

/// Metrics in requests of one item, which counts its encodings.
struct Counted;

static ENCODINGS: AtomicU64 = AtomicU64::new(0);

impl Kind for Counted {
    type Batch = Snapshot;
    const ATTEMPTS: Option<u32> = None;

    async fn next(subscription: &mut Subscription) -> Option<Arc<Snapshot>> {
        Metrics::next(subscription).await
    }

    fn items(batch: &Snapshot) -> u64 {
        Metrics::items(batch)
    }

    fn requests(&self, batch: &Snapshot, _: Encoding) -> impl Iterator<Item = Encoded> + Send {
        (0..batch.points()).map(|number| {
            ENCODINGS.fetch_add(1, Ordering::Relaxed);
            Encoded {
                bytes: Bytes::from(vec![u8::try_from(number).expect("few points")]),
                items: 1,
                indices: Vec::new(),
            }
        })
    }

    fn count(statistics: &Statistics, outcome: ErrorType, items: u64) {
        Metrics::count(statistics, outcome, items);
    }

    fn finish(batch: &Snapshot, outcome: ErrorType, duration: Duration, statistics: &Statistics) {
        Metrics::finish(batch, outcome, duration, statistics);
    }

    fn give_up(reason: &'static str, duration: Duration, statistics: &Statistics) {
        Metrics::give_up(reason, duration, statistics);
    }
}

#[tokio::test(start_paused = true)]
async fn each_request_of_a_batch_is_encoded_once() {
    let ok = || Ok(Reply::default());
    let outcomes = [
        ok(),
        failure(FailureKind::Connection, None),
        failure(FailureKind::Retryable, Some(9)),
        ok(),
        failure(FailureKind::Refused(Refusal::Content), None),
    ];
    let (transport, sent) = Scripted::new(Items::Metrics, outcomes);
    let statistics = Statistics::new("test");
    let bus = Bus::default();
    let subscription = bus.subscribe(Topics::SNAPSHOTS, &statistics);
    bus.publish(&lost(5, after(1)));
    let delivery = tokio::spawn(Delivery::new(Counted, transport, statistics.clone()).run(subscription));
    while statistics.totals().settled.is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bus.close();
    delivery.await.expect("the delivery ends");
    let sent: Vec<u8> = sent.lock().expect("requests").iter().map(|(request, _)| request[0]).collect();
    assert_eq!(sent, [0, 1, 1, 1, 2, 3, 4]);
    assert_eq!(ENCODINGS.load(Ordering::Relaxed), 5);
    assert_eq!(statistics.totals().points, [(None, 4), (Some("scripted"), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn another_transport_ends_the_wait_and_gets_the_whole_batch() {
    let (failing, attempts) = Scripted::new(Items::Metrics, [failure(FailureKind::Retryable, Some(600))]);
    let (transport, sent) = Scripted::new(Items::Metrics, [Ok(Reply::default())]);
    let (bus, statistics) = (Bus::default(), Statistics::new("test"));
    let delivery = Delivery::new(Metrics(CollectorState::default()), failing, statistics.clone());
    let replacement = delivery.replacement();
    let delivery = tokio::spawn(delivery.run(bus.subscribe(Topics::SNAPSHOTS, &statistics)));
    bus.publish(&lost(5, after(1)));
    while attempts.lock().expect("requests").is_empty() {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    replacement.set(transport);
    while statistics.totals().settled.is_none() {
        tokio::task::yield_now().await;
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    bus.close();
    delivery.await.expect("the delivery ends");
    assert_eq!((sent.lock().expect("requests").len(), statistics.totals().points(None)), (1, 5));
}

#[tokio::test(start_paused = true)]
async fn refused_counts_are_part_of_the_next_difference() {
    let refused = || failure(FailureKind::Refused(Refusal::Content), None);
    let outcomes = [refused(), Ok(Reply::default()), Ok(Reply { rejected: 1, message: String::new() }), refused()];
    let (transport, sent) = Scripted::new(Items::Metrics, outcomes);
    let statistics = Statistics::new("test");
    let bus = Bus::default();
    let view = CollectorState::new(Form { temporality: Temporality::Delta, ..Form::default() });
    let delivery = Delivery::new(Metrics(view), transport, statistics.clone());
    let delivery = tokio::spawn(delivery.run(bus.subscribe(Topics::SNAPSHOTS, &statistics)));
    for (count, seconds) in [(5, 1), (8, 2), (10, 3), (11, 4), (15, 5)] {
        let points = vec![point(Attributes::new(), Data::Integer(count))];
        bus.publish(&Arc::new(node(vec![Metric { descriptor: &LOST, points }], after(seconds))));
        while statistics.totals().settled != Some(after(seconds)) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    bus.close();
    delivery.await.expect("the delivery ends");
    let counts: Vec<_> = sent.lock().expect("requests").iter().map(|(request, _)| count(request)).collect();
    assert_eq!(counts, [5, 8, 2, 1, 5]);
}

/// Returns the only value of a request.
fn count(request: &Bytes) -> i64 {
    let request = ExportMetricsServiceRequest::decode(request.clone()).expect("a request");
    match &request.resource_metrics[0].scope_metrics[0].metrics[0].data {
        Some(Wire::Sum(sum)) => match sum.data_points[0].value {
            Some(Value::AsInt(count)) => count,
            other => panic!("no integer: {other:?}"),
        },
        other => panic!("no sum: {other:?}"),
    }
}

/// Delivers one batch of three spans. Returns the statistics, the times of the attempts in seconds, and the number of
/// acceptances.
async fn deliver_spans(
    outcomes: impl IntoIterator<Item = Result<Reply, Failure>>,
) -> (crate::telemetry::Delivery, Vec<u64>, usize) {
    let (transport, sent) = Scripted::new(Items::Spans, outcomes);
    let statistics = Statistics::new("test");
    let bus = Bus::default();
    let subscription = bus.subscribe(Topics::SPANS, &statistics);
    let (spans, began) = (Arc::new(batch(3)), Instant::now());
    bus.publish_spans(&spans);
    bus.close();
    Delivery::new(Spans, transport, statistics.clone()).run(subscription).await;
    let times = sent.lock().expect("requests").iter().map(|(_, at)| (*at - began).as_secs()).collect();
    (statistics.totals(), times, spans.accepted())
}

#[tokio::test(start_paused = true)]
async fn spans_have_five_attempts() {
    let unavailable = || failure(FailureKind::Retryable, Some(7));
    let (totals, times, accepted) = deliver_spans(std::iter::repeat_with(unavailable).take(4)).await;
    assert_eq!((totals.spans, times, accepted), ([(None, 3)].into(), vec![0, 7, 14, 21, 28], 1));
    let (totals, times, accepted) = deliver_spans(std::iter::repeat_with(unavailable).take(5)).await;
    assert_eq!((totals.spans, times.len(), accepted), ([(Some("scripted"), 3)].into(), 5, 0));
    assert_eq!((totals.dropped_snapshots, totals.exports.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn refused_and_partly_rejected_spans_are_not_accepted() {
    for kind in [FailureKind::TooLarge, FailureKind::Refused(Refusal::Other)] {
        let (totals, times, accepted) = deliver_spans([failure(kind, Some(1))]).await;
        assert_eq!((totals.spans, times.len(), accepted), ([(Some("scripted"), 3)].into(), 1, 0));
    }
    let partial = Reply { rejected: 2, message: "too old".to_owned() };
    let (totals, times, accepted) = deliver_spans([Ok(partial)]).await;
    assert_eq!((totals.spans, times.len(), accepted), ([(None, 1), (Some("rejected"), 2)].into(), 1, 0));
}
