//! Tests of the delivery with a scripted collector.

mod connection;
mod delivery;
mod delta;
mod dialer;
mod http;
mod outage;
mod own;
mod server;
mod settings;
mod tls;
mod trial;
mod web;
mod wire;

use std::{sync::Arc, time::Duration};

use server::{Answer, Collector};
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::{destination::Destination, grpc::Grpc, *};
use crate::{
    Outputs, REQUEST_LIMIT,
    telemetry::{Snapshot, UnixNanos},
    testing::{after, lost},
};

const DEADLINE: Duration = Duration::from_secs(2);

fn settings(variables: &[(&str, &str)]) -> Settings {
    let lookup = |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (name, (*value).to_owned()));
    Settings::from_variables(Items::Metrics, lookup, &FileSettings::default()).expect("settings")
}

/// Opens an output to the scripted collector in memory. In paused time, only the output's timers advance the
/// clock.
fn open_into(collector: &Collector, settings: Settings) -> Outputs {
    let statistics = Statistics::new("otlp");
    let connector = collector.connector();
    let channel = connector.channel();
    let client = Grpc::new(Items::Metrics, settings, connector, channel);
    let delivery = Delivery::new(Metrics(CollectorState::default()), client, statistics.clone());
    let bus = Bus::default();
    let subscription = bus.subscribe(Topics::SNAPSHOTS, &statistics);
    Outputs::new(bus, vec![Output::in_task(statistics, delivery.run(subscription))])
}

fn counts(outputs: &Outputs) -> Statistics {
    outputs.statistics().remove(0)
}

fn publish(outputs: &Outputs, snapshot: Arc<Snapshot>) {
    outputs.bus().publish(&snapshot);
}

async fn shutdown(outputs: Outputs, deadline: Duration) {
    outputs.shutdown(deadline).await.expect("no output fails");
}

fn throttled(code: Code, delay: Duration) -> Answer {
    Answer::Refuse(Status::with_error_details(code, "later", ErrorDetails::with_retry_info(Some(delay))))
}

#[tokio::test(start_paused = true)]
async fn unavailable_is_retried_until_success() {
    let unavailable = || Answer::Refuse(Status::unavailable("starting up"));
    let mut collector = Collector::start([unavailable(), unavailable(), Answer::Accept]);
    let outputs = open_into(&collector, settings(&[]));
    let statistics = counts(&outputs);
    let began = Instant::now();
    publish(&outputs, lost(5, after(1)));
    for _ in 0..3 {
        assert_eq!(collector.received().await.points, 5);
    }
    // One second, then two, each with a random addition of up to its length.
    let waited = began.elapsed();
    assert!((Duration::from_secs(3)..=Duration::from_millis(6100)).contains(&waited), "{waited:?}");
    shutdown(outputs, DEADLINE).await;
    let totals = statistics.totals();
    // Both failed attempts belong to one successful export.
    assert_eq!((totals.points, totals.dropped_snapshots), ([(None, 5)].into(), 0));
    assert_eq!(totals.exports.keys().collect::<Vec<_>>(), [&None]);
    let [export] = totals.exports.into_values().collect::<Vec<_>>().try_into().expect("one outcome");
    // The export begins after the publication, by a millisecond if the clock advances in between.
    let longest = waited.as_secs_f64();
    assert_eq!(export.count(), 1);
    assert!((longest - 0.1..=longest + 0.1).contains(&export.sum), "{export:?} after {longest} s");
}

#[tokio::test(start_paused = true)]
async fn resource_exhausted_is_retried_after_the_requested_delay() {
    let delay = Duration::from_secs(17);
    let mut collector = Collector::start([throttled(Code::ResourceExhausted, delay), Answer::Accept]);
    let outputs = open_into(&collector, settings(&[]));
    let statistics = counts(&outputs);
    publish(&outputs, lost(1, after(1)));
    collector.received().await;
    let refused = Instant::now();
    collector.received().await;
    let waited = refused.elapsed();
    assert!((delay..delay + Duration::from_millis(100)).contains(&waited), "{waited:?}");
    shutdown(outputs, DEADLINE).await;
    assert_eq!(statistics.totals().points, [(None, 1)].into());
}

/// Returns a refusal with a `google.rpc.RetryInfo` of any number of seconds. `ErrorDetails` limits the number.
fn refusal_for(seconds: i64) -> Status {
    let field = |number: u8, content: &[u8]| {
        [&[number << 3 | 2, u8::try_from(content.len()).expect("a short field")], content].concat()
    };
    let mut duration = vec![1 << 3];
    prost::encoding::encode_varint(seconds.cast_unsigned(), &mut duration);
    let any = [field(1, b"type.googleapis.com/google.rpc.RetryInfo"), field(2, &field(1, &duration))].concat();
    Status::with_details(Code::Unavailable, "later", field(3, &any).into())
}

#[tokio::test(start_paused = true)]
async fn a_requested_delay_is_limited() {
    const TEN_YEARS: i64 = 315_360_000;
    for seconds in [TEN_YEARS, i64::MAX] {
        let mut collector = Collector::start([Answer::Refuse(refusal_for(seconds)), Answer::Accept]);
        let outputs = open_into(&collector, settings(&[]));
        publish(&outputs, lost(1, after(1)));
        collector.received().await;
        let refused = Instant::now();
        collector.received().await;
        let (waited, limit) = (refused.elapsed(), failure::LONGEST_THROTTLE);
        assert!((limit..limit + Duration::from_millis(100)).contains(&waited), "{seconds} s: {waited:?}");
        shutdown(outputs, DEADLINE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn permanent_failures_are_not_retried() {
    for refusal in [Status::invalid_argument("no such field"), Status::resource_exhausted("message too large")] {
        let reason = if refusal.code() == Code::InvalidArgument { "invalid_argument" } else { "resource_exhausted" };
        let mut collector = Collector::start([Answer::Refuse(refusal), Answer::Accept]);
        let outputs = open_into(&collector, settings(&[]));
        let statistics = counts(&outputs);
        publish(&outputs, lost(3, after(1)));
        assert_eq!(collector.received().await.time, after(1).0);
        publish(&outputs, lost(2, after(2)));
        assert_eq!(collector.received().await.time, after(2).0);
        shutdown(outputs, DEADLINE).await;
        assert_eq!(collector.left(), 0);
        let totals = statistics.totals();
        assert_eq!(totals.points, [(None, 2), (Some(reason), 3)].into());
        assert_eq!((totals.snapshots(None), totals.snapshots(Some(reason))), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_points_of_a_partial_success_are_counted() {
    let mut collector = Collector::start([Answer::AcceptAllBut(2), Answer::Accept]);
    let outputs = open_into(&collector, settings(&[]));
    let statistics = counts(&outputs);
    publish(&outputs, lost(10, after(1)));
    collector.received().await;
    shutdown(outputs, DEADLINE).await;
    let totals = statistics.totals();
    assert_eq!(totals.points, [(None, 8), (Some("rejected"), 2)].into());
    assert_eq!((totals.snapshots(None), totals.snapshots(Some("rejected"))), (0, 1));
    assert_eq!(collector.left(), 0, "what was accepted must not be sent again");
}

#[tokio::test(start_paused = true)]
async fn a_request_to_a_hanging_server_times_out() {
    let mut collector = Collector::start([Answer::Hang, Answer::Accept]);
    let outputs = open_into(&collector, settings(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "2500")]));
    let statistics = counts(&outputs);
    publish(&outputs, lost(1, after(1)));
    let began = Instant::now();
    let first = collector.received().await;
    assert_eq!(first.header("grpc-timeout"), Some("2500000u".to_owned()));
    collector.received().await;
    let waited = began.elapsed();
    assert!((Duration::from_millis(3500)..Duration::from_millis(4600)).contains(&waited), "{waited:?}");
    shutdown(outputs, DEADLINE).await;
    assert_eq!(statistics.totals().points, [(None, 1)].into());
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_follows_two_timeouts() {
    let mut collector = Collector::start([Answer::Accept, Answer::Hang, Answer::Hang, Answer::Accept]);
    let outputs = open_into(&collector, settings(&[]));
    let statistics = counts(&outputs);
    for (snapshot, attempts, connected) in [(1, 1, 1), (2, 3, 2)] {
        publish(&outputs, lost(1, after(snapshot)));
        for _ in 0..attempts {
            collector.received().await;
        }
        assert_eq!(collector.connected(), connected, "snapshot {snapshot}");
    }
    shutdown(outputs, DEADLINE).await;
    assert_eq!(statistics.totals().points, [(None, 2)].into());
}

#[tokio::test(start_paused = true)]
async fn the_newest_snapshot_replaces_pending_ones() {
    let delay = Duration::from_secs(60);
    let mut collector = Collector::start([throttled(Code::Unavailable, delay), Answer::Accept]);
    let outputs = open_into(&collector, settings(&[]));
    let statistics = counts(&outputs);
    publish(&outputs, lost(1, after(1)));
    collector.received().await;
    let refused = Instant::now();
    for tick in 2..=4 {
        tokio::time::advance(Duration::from_secs(10)).await;
        publish(&outputs, lost(1, after(tick)));
    }
    assert_eq!(collector.received().await.time, after(4).0);
    assert!(refused.elapsed() >= delay, "a newer snapshot must not cut the server's wait short");
    shutdown(outputs, DEADLINE).await;
    let totals = statistics.totals();
    assert_eq!((totals.dropped_snapshots, totals.points.clone()), (3, [(None, 1), (Some("unavailable"), 3)].into()));
    assert_eq!((totals.snapshots(None), totals.snapshots(Some("unavailable"))), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn shutdown_skips_the_back_off() {
    let mut collector = Collector::start([Answer::Refuse(Status::unavailable("")), Answer::Accept]);
    let outputs = open_into(&collector, settings(&[]));
    let statistics = counts(&outputs);
    publish(&outputs, lost(1, after(1)));
    collector.received().await;
    publish(&outputs, lost(4, after(2)));
    let began = Instant::now();
    shutdown(outputs, DEADLINE).await;
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    assert_eq!(collector.received().await.time, after(2).0);
    let totals = statistics.totals();
    assert_eq!((totals.points, totals.dropped_snapshots), ([(None, 4), (Some("unavailable"), 1)].into(), 1));
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_at_its_deadline_and_counts_lost_snapshots() {
    let mut collector = Collector::start([Answer::Hang]);
    let outputs = open_into(&collector, settings(&[]));
    let statistics = counts(&outputs);
    publish(&outputs, lost(1, after(1)));
    collector.received().await;
    let began = Instant::now();
    shutdown(outputs, DEADLINE).await;
    assert!((DEADLINE..DEADLINE + Duration::from_millis(100)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!((statistics.totals().points, statistics.totals().dropped_snapshots), ([].into(), 1));
}

/// Waits until the output has settled a snapshot, while the paused clock advances.
async fn settled(outputs: &Outputs) -> UnixNanos {
    let settled = async {
        while outputs.delivered() == UnixNanos(0) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), settled).await.expect("nothing settled");
    outputs.delivered()
}

#[tokio::test(start_paused = true)]
async fn snapshots_for_an_unreachable_collector_stay_unsettled() {
    let unavailable = || Answer::Refuse(Status::unavailable("starting up"));
    let mut collector = Collector::start([unavailable(), unavailable(), Answer::Accept]);
    let outputs = open_into(&collector, settings(&[]));
    for seconds in 1..=2 {
        publish(&outputs, lost(5, after(seconds)));
        assert_eq!(collector.received().await.time, after(seconds).0);
        assert_eq!(outputs.delivered(), UnixNanos(0));
    }
    // Only the newest snapshot is delivered, and the replaced ones count as dropped.
    publish(&outputs, lost(5, after(3)));
    assert_eq!(collector.received().await.time, after(3).0);
    assert_eq!(settled(&outputs).await, after(3));
}

#[tokio::test(start_paused = true)]
async fn permanently_refused_snapshots_are_settled() {
    for answer in [Answer::Refuse(Status::unauthenticated("who are you?")), Answer::AcceptAllBut(5)] {
        let collector = Collector::start([answer]);
        let outputs = open_into(&collector, settings(&[]));
        publish(&outputs, lost(5, after(1)));
        assert_eq!(settled(&outputs).await, after(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_not_settled_before_its_last_part() {
    let snapshot = lost(120_000, after(1));
    let parts = crate::requests(&snapshot, REQUEST_LIMIT).count();
    let refusal = Answer::Refuse(Status::invalid_argument("no such field"));
    let accepted = (2..parts).map(|_| Answer::Accept);
    let away = [Answer::Refuse(Status::unavailable("restarting")), Answer::Accept];
    let mut collector = Collector::start([refusal].into_iter().chain(accepted).chain(away));
    let outputs = open_into(&collector, settings(&[]));
    publish(&outputs, snapshot);
    for _ in 0..parts {
        collector.received().await;
        assert_eq!(outputs.delivered(), UnixNanos(0));
    }
    assert_eq!(settled(&outputs).await, after(1));
}

#[tokio::test(start_paused = true)]
async fn every_request_has_headers_and_compression() {
    for (compression, encoding) in
        [("gzip", Some("gzip".to_owned())), ("zstd", Some("zstd".to_owned())), ("none", None)]
    {
        let mut collector = Collector::start([Answer::Accept, Answer::Accept]);
        let variables = [
            ("OTEL_EXPORTER_OTLP_COMPRESSION", compression),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc,x-tenant=a"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "authorization=Bearer%20def"),
        ];
        let outputs = open_into(&collector, settings(&variables));
        let statistics = counts(&outputs);
        publish(&outputs, lost(7, after(1)));
        let received = collector.received().await;
        assert_eq!(received.points, 7);
        assert_eq!(received.header("authorization"), Some("Bearer def".to_owned()));
        assert_eq!(received.header("x-tenant"), None, "headers for metrics replace the general ones");
        assert_eq!(received.header("grpc-encoding"), encoding);
        let accepted = received.header("grpc-accept-encoding").expect("accepted encodings");
        assert!(["gzip", "zstd"].iter().all(|encoding| accepted.contains(encoding)), "{accepted}");
        shutdown(outputs, DEADLINE).await;
        // The scripted collector compresses its responses if the client accepts compression.
        assert_eq!(statistics.totals().points, [(None, 7)].into());
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_snapshot_is_split_and_resumes_at_the_failed_part() {
    let snapshot = lost(120_000, after(1));
    let parts: Vec<u64> = crate::requests(&snapshot, REQUEST_LIMIT).map(|part| part.points).collect();
    assert!(parts.len() >= 2, "{parts:?}");
    let refusal = Answer::Refuse(Status::aborted("busy"));
    let accept = parts[1..].iter().map(|_| Answer::Accept);
    let mut collector = Collector::start([Answer::Accept, refusal].into_iter().chain(accept));
    let outputs = open_into(&collector, settings(&[]));
    let statistics = counts(&outputs);
    publish(&outputs, snapshot);
    let mut seen = Vec::new();
    for _ in 0..=parts.len() {
        seen.push(collector.received().await.points);
    }
    let mut expected = parts.clone();
    expected.insert(1, parts[1]);
    assert_eq!(seen, expected);
    shutdown(outputs, DEADLINE).await;
    let totals = statistics.totals();
    assert_eq!((totals.points(None), totals.snapshots(None), totals.dropped_snapshots), (120_000, 1, 0));
}

#[tokio::test]
async fn a_refused_connection_counts_as_a_failure_and_does_not_end_the_output() {
    // A port that was free a moment before: bound, then closed.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let endpoint = format!("http://{port}");
    let bus = Bus::default();
    let (output, _) = open(&bus, settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]), None).expect("output");
    let statistics = output.statistics().clone();
    let outputs = Outputs::new(bus, vec![output]);
    publish(&outputs, lost(1, after(1)));
    // The second snapshot replaces the first one after its failed attempt.
    let refused = async {
        while statistics.totals().points.is_empty() {
            publish(&outputs, lost(1, after(2)));
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), refused).await.expect("no failure counted");
    // Shutdown makes one more attempt and does not wait for the deadline.
    let began = Instant::now();
    shutdown(outputs, Duration::from_secs(600)).await;
    assert!(began.elapsed() < Duration::from_secs(300));
    let totals = statistics.totals();
    assert_eq!(totals.points.keys().collect::<Vec<_>>(), [&Some("unavailable")]);
    assert!(totals.dropped_snapshots >= totals.points(Some("unavailable")), "{totals:?}");
}

fn described(settings: &Settings, status: &Status) -> String {
    Destination::new(Items::Metrics, settings).describe(&grpc::failure(status))
}

#[test]
fn failure_messages_have_error_endpoint_and_remedy() {
    let settings = settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")]);
    let shown = |status: Status| described(&settings, &status);
    let lines = [
        shown(Status::unavailable("tcp connect error")),
        shown(Status::deadline_exceeded("no answer within 10000 ms")),
        shown(Status::unauthenticated("")),
        shown(Status::unimplemented("unknown service")),
        shown(Status::invalid_argument("bad point")),
    ];
    insta::assert_snapshot!(lines.join("\n"));
}
