//! Snapshots of the formats, and the newest snapshot for readers.

use std::{sync::Arc, time::Duration};

use opentelemetry::trace::{TraceFlags, TraceState};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message as _;

use super::*;
use crate::{
    Outputs,
    telemetry::{Attributes, Data, ExponentialHistogram, Metric, Snapshot, SpanContext, UnixNanos},
    testing::{DURATION, HOOK, LOST, RATIO, after, histogram, lost, node, point, resource_metrics, snapshots},
};

/// Returns an exemplar of a measurement in seconds, some milliseconds after the start.
fn exemplar(value: f64, milliseconds: u64) -> Exemplar {
    let ids = (0xabc_u128.into(), (milliseconds + 1).into());
    Exemplar {
        context: SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, false, TraceState::NONE),
        value,
        time: UnixNanos(after(0).0 + milliseconds * 1_000_000),
        attributes: Attributes::new().with("network.type", "ipv4"),
    }
}

fn durations(exemplars: Vec<Exemplar>) -> Metric {
    let attributes = Attributes::new().with("undercurrent.network.layer", "ip");
    let measured = ExponentialHistogram { zero_count: 7, exemplars, ..histogram(-40, vec![1, 0, 0, 0, 5, 0, 2], 0.25) };
    Metric { descriptor: &DURATION, points: vec![point(attributes, Data::Histogram(measured))] }
}

/// Returns a snapshot of the node and a workload with a hostile name.
fn snapshot(exemplars: Vec<Exemplar>) -> Snapshot {
    let one = |descriptor, attributes, data| Metric { descriptor, points: vec![point(attributes, data)] };
    let lost = one(&LOST, Attributes::new().with("undercurrent.reason", "negative"), Data::Integer(3));
    let state = Attributes::new().with("undercurrent.hook", "ip").with("undercurrent.hook.state", "healthy");
    let mut snapshot = node(
        vec![lost.clone(), one(&HOOK, state, Data::Integer(1)), one(&RATIO, Attributes::new(), Data::Double(0.25))],
        after(10),
    );
    let workload = Attributes::new().with("service.instance.id", "1234").with("container.name", "a\"b\\c\nd");
    snapshot.resources.push(resource_metrics(workload, vec![durations(exemplars), lost]));
    snapshot
}

fn encoded(snapshot: Snapshot, format: Format) -> Bytes {
    Kept::new(Arc::new(snapshot), None, Shown::default()).encoded(format)
}

fn text(format: Format) -> String {
    let exemplars = vec![exemplar(0.002, 1), exemplar(0.0021, 2), exemplar(0.0001, 3)];
    String::from_utf8(encoded(snapshot(exemplars), format).to_vec()).expect("UTF-8")
}

#[test]
fn the_text_format() {
    insta::assert_snapshot!(text(Format::Text));
}

#[test]
fn the_format_of_openmetrics() {
    insta::assert_snapshot!(text(Format::OpenMetrics));
}

#[test]
fn the_protobuf_format() {
    let exemplars = vec![exemplar(0.002, 1), exemplar(0.0001, 3)];
    let encoded = encoded(snapshot(exemplars), Format::Protobuf);
    let (mut rest, mut families) = (encoded.as_ref(), Vec::new());
    while !rest.is_empty() {
        families.push(protobuf::MetricFamily::decode_length_delimited(&mut rest).expect("a family"));
    }
    insta::assert_debug_snapshot!(families);
}

#[test]
fn a_snapshot_in_json_is_one_request_with_all_points() {
    let mut large = snapshot(vec![exemplar(0.002, 1)]);
    // More than one part.
    large.resources.extend(lost(20_000, after(10)).resources.iter().cloned());
    let points = large.points();
    let encoded = encoded(large, Format::Json);
    let request: ExportMetricsServiceRequest = serde_json::from_slice(&encoded).expect("a request");
    use opentelemetry_proto::tonic::metrics::v1::metric::Data as Wire;
    let metrics = request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
    let found = metrics.flat_map(|scope| &scope.metrics).map(|metric| match &metric.data {
        Some(Wire::Sum(sum)) => sum.data_points.len(),
        Some(Wire::Gauge(gauge)) => gauge.data_points.len(),
        Some(Wire::ExponentialHistogram(histogram)) => histogram.data_points.len(),
        _ => 0,
    });
    assert_eq!(found.sum::<usize>() as u64, points);
    assert!(request.resource_metrics.len() > 3);
}

proptest::proptest! {
    /// Foreign names add no lines, and end no text.
    #[test]
    fn texts_have_a_line_for_each_series(snapshot in snapshots()) {
        let kept = Kept::new(Arc::new(snapshot), None, Shown::default());
        for format in [Format::Text, Format::OpenMetrics] {
            let text = String::from_utf8(kept.encoded(format).to_vec()).expect("UTF-8");
            for line in text.split('\n').filter(|line| !line.is_empty()) {
                let is_known = line.starts_with("undercurrent_") || line.starts_with(TARGET_INFO) || line.starts_with("# ");
                proptest::prop_assert!(is_known, "{line:?}");
            }
            proptest::prop_assert_eq!(text.matches("# EOF\n").count(), usize::from(format == Format::OpenMetrics));
        }
    }
}

fn read(newest: &Newest, format: Format) -> Option<Bytes> {
    newest.encoded(format).map(|(encoded, _)| encoded)
}

/// Publishes a snapshot, and waits until it is kept.
async fn publish(bus: &Bus, output: &Statistics, snapshot: Snapshot) {
    let time = snapshot.time;
    bus.publish(&Arc::new(snapshot));
    while output.totals().settled != Some(time) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn readers_get_the_newest_snapshot_and_hold_nothing_back() {
    let bus = Bus::default();
    let (output, newest) = open(&bus, None);
    let outputs = Outputs::new(bus, vec![output]);
    let statistics = outputs.statistics().remove(0);
    assert!(statistics.is_read() && read(&newest, Format::Text).is_none());
    for seconds in 1..=3 {
        publish(outputs.bus(), &statistics, Snapshot { time: after(seconds), ..snapshot(Vec::new()) }).await;
        assert_eq!(outputs.delivered(), after(seconds), "no reader has come");
    }
    let text = read(&newest, Format::Text).expect("a snapshot");
    assert_eq!(read(&newest, Format::Text).map(|again| again.as_ptr()), Some(text.as_ptr()), "it is encoded once");
    newest.count(newest.encoded(Format::Text).map(|(_, points)| points).ok_or("503"), Duration::ZERO);
    newest.count(Err("timeout"), Duration::ZERO);
    let totals = statistics.totals();
    assert_eq!((totals.points(None), totals.snapshots(None), totals.snapshots(Some("timeout"))), (5, 1, 1));
    outputs.shutdown(Duration::from_secs(20)).await.expect("no failure");
}

#[tokio::test]
async fn exemplars_stay_for_later_readers_until_their_series_ends() {
    let bus = Bus::default();
    let (output, newest) = open(&bus, None);
    let statistics = output.statistics().clone();
    let exemplars = || {
        let text = String::from_utf8(read(&newest, Format::OpenMetrics).expect("a snapshot").to_vec()).expect("UTF-8");
        text.matches(" # {trace_id=").count()
    };
    publish(&bus, &statistics, snapshot(vec![exemplar(0.002, 1), exemplar(0.0001, 2)])).await;
    assert_eq!(exemplars(), 2);
    publish(&bus, &statistics, Snapshot { time: after(11), ..snapshot(vec![exemplar(3.0, 4)]) }).await;
    assert_eq!(exemplars(), 3);
    let many = (0..40).map(|number| exemplar(0.002, 5 + number)).collect();
    publish(&bus, &statistics, Snapshot { time: after(12), ..snapshot(many) }).await;
    assert_eq!(exemplars(), 1, "the newest ones are all in one bucket");
    let mut without = snapshot(Vec::new());
    without.resources.pop();
    publish(&bus, &statistics, Snapshot { time: after(13), ..without }).await;
    publish(&bus, &statistics, Snapshot { time: after(14), ..snapshot(Vec::new()) }).await;
    assert_eq!(exemplars(), 0);
}
