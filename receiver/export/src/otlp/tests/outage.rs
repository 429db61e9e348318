//! An hour without a collector, in the time of a paused clock.

use std::{
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    metrics::v1::{metric::Data as Wire, number_data_point::Value},
};
use prost::{Message as _, bytes::Bytes};
use tokio::time::Instant;

use crate::{
    Bus, Statistics, Topics,
    acknowledged::CollectorState,
    encoding::Encoding,
    otlp::{
        Form, Items, Temporality,
        delivery::Delivery,
        destination::Destination,
        failure::{Failure, FailureKind},
        kind::{Kind, Metrics, Spans},
        tests::settings,
        transport::{Reply, Transport},
    },
    telemetry::{Attributes, Data, Metric, Snapshot},
    testing::{LOST, after, batch, node, point},
};

const INTERVAL: Duration = Duration::from_secs(10);
/// The snapshots of an hour.
const TICKS: u64 = 360;

/// A collector that is down until a time.
struct Away {
    destination: Destination,
    until: Instant,
    received: Arc<Mutex<Vec<Bytes>>>,
}

impl Transport for Away {
    fn destination(&self) -> &Destination {
        &self.destination
    }

    fn encoding(&self) -> Encoding {
        Encoding::Protobuf
    }

    async fn send(&mut self, request: Bytes) -> Result<Reply, Failure> {
        if Instant::now() < self.until {
            return Err(Failure::new(FailureKind::Connection, "unavailable", "connection refused"));
        }
        self.received.lock().expect("requests").push(request);
        Ok(Reply::default())
    }
}

/// Starts a delivery to a collector that is down for an hour.
fn start<K: Kind>(kind: K, items: Items, topics: Topics) -> (Bus, Statistics, Arc<Mutex<Vec<Bytes>>>) {
    let (bus, statistics, received) = (Bus::default(), Statistics::new("test"), Arc::default());
    let until = Instant::now() + INTERVAL * u32::try_from(TICKS).expect("a small number");
    let away = Away { destination: Destination::new(items, &settings(&[])), until, received: Arc::clone(&received) };
    let delivery = Delivery::new(kind, away, statistics.clone());
    tokio::spawn(delivery.run(bus.subscribe(topics, &statistics)));
    (bus, statistics, received)
}

/// Returns the only value of a request.
fn count(request: &Bytes) -> i64 {
    let request = ExportMetricsServiceRequest::decode(request.clone()).expect("a request");
    let Some(Wire::Sum(sum)) = &request.resource_metrics[0].scope_metrics[0].metrics[0].data else { panic!("no sum") };
    let Some(Value::AsInt(count)) = sum.data_points[0].value else { panic!("no integer") };
    count
}

/// Publishes a snapshot in each interval of an hour and a minute. Returns the received counts, the last count, and the most
/// snapshots that existed at once.
async fn count_through_an_outage(temporality: Temporality) -> (Vec<i64>, i64, usize) {
    let form = Form { temporality, ..Form::default() };
    let (bus, statistics, received) = start(Metrics(CollectorState::new(form)), Items::Metrics, Topics::SNAPSHOTS);
    let mut published: Vec<Weak<Snapshot>> = Vec::new();
    let (mut last, mut most) = (0, 0);
    for tick in 1..=TICKS + 6 {
        last = i64::try_from(tick * 7).expect("a small number");
        let points = vec![point(Attributes::new(), Data::Integer(last))];
        let snapshot = Arc::new(node(vec![Metric { descriptor: &LOST, points }], after(tick * 10)));
        published.push(Arc::downgrade(&snapshot));
        bus.publish(&snapshot);
        drop(snapshot);
        tokio::time::sleep(INTERVAL).await;
        published.retain(|snapshot| snapshot.strong_count() > 0);
        most = most.max(published.len());
    }
    assert_eq!(statistics.totals().settled, Some(after((TICKS + 6) * 10)));
    assert!(statistics.totals().dropped_snapshots >= TICKS - 1, "{:?}", statistics.totals());
    let counts = received.lock().expect("requests").iter().map(count).collect();
    (counts, last, most)
}

#[tokio::test(start_paused = true)]
async fn an_hour_costs_no_counts_and_no_memory() {
    let (counts, last, most) = count_through_an_outage(Temporality::Cumulative).await;
    assert_eq!(counts.last(), Some(&last));
    assert!(most <= 2, "{most} snapshots existed at once");
    let (counts, last, most) = count_through_an_outage(Temporality::Delta).await;
    assert_eq!(counts.iter().sum::<i64>(), last);
    assert!(most <= 2, "{most} snapshots existed at once");
}

#[tokio::test(start_paused = true)]
async fn an_hour_costs_spans_beyond_the_queue_which_are_counted() {
    const SPANS: usize = 100;
    let (bus, statistics, received) = start(Spans, Items::Spans, Topics::SPANS);
    let mut published = Vec::new();
    let mut most = 0;
    for _ in 0..TICKS + 60 {
        let spans = Arc::new(batch(SPANS));
        published.push(Arc::downgrade(&spans));
        bus.publish_spans(&spans);
        drop(spans);
        tokio::time::sleep(INTERVAL).await;
        published.retain(|spans| spans.strong_count() > 0);
        most = most.max(published.len());
    }
    // The queue has space for 4,096 spans, and one batch is under way.
    assert!(most <= 41, "{most} batches existed at once");
    let totals = statistics.totals();
    let outcomes: u64 = totals.spans.values().sum::<u64>() + totals.dropped_spans;
    assert_eq!(outcomes, (TICKS + 60) * SPANS as u64, "every span has an outcome: {totals:?}");
    assert!(totals.dropped_spans > 0 && totals.spans.contains_key(&Some("unavailable")), "{totals:?}");
    assert!(received.lock().expect("requests").len() >= 60);
}
