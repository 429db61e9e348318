//! Tests of the delivery of spans to collectors.

use std::{cell::Cell, time::Duration};

use super::{
    super::{
        latency::served_by,
        support::{
            collector::Collector,
            line::Line,
            sidecar::{Sidecar, file},
            surroundings::{alone, often, patience, skip, wait_for},
            truth::{exactly, record},
            wire::{Version, Wire},
        },
    },
    late, read_late, settings, stream, traced,
};

const EXPORTED: &str = "otel.sdk.exporter.span.exported";

#[test]
fn spans_have_an_endpoint_of_their_own() {
    let Some(_alone) = alone("the endpoint of spans") else { return };
    let [metrics, traces] = [false, true].map(|takes| Collector::start_with(Duration::ZERO, usize::MAX, takes));
    let file = file(&settings(""));
    let arguments = ["--config", file.path().to_str().unwrap(), "--output", "otlp"];
    let endpoints = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*metrics.endpoint()),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &traces.endpoint()),
    ];
    let sidecar = Sidecar::start_with(often(), &arguments, &endpoints);
    if served_by(&sidecar.snapshot(), "socket_read").is_none() {
        return skip("the endpoint of spans: nothing serves socket_read");
    }
    let (client, server) = stream(&Wire::loopback(Version::Ipv4));
    let slow = read_late(&client, &server, late);
    let (span, _) = traced(&sidecar, &slow);
    wait_for("the span at its endpoint", patience(Duration::from_secs(5)), || {
        traces.spans().contains(&span).then_some(())
    });
    assert!(metrics.deliveries().iter().any(|delivery| delivery.accepted) && traces.deliveries().is_empty());
}

#[test]
fn refused_spans_are_counted_and_metrics_arrive() {
    let Some(_alone) = alone("refused spans") else { return };
    for takes_spans in [false, true] {
        let collector = Collector::start_with(Duration::ZERO, usize::MAX, takes_spans);
        let file = file(&settings(""));
        let arguments = ["--config", file.path().to_str().unwrap(), "--output", "otlp"];
        let endpoint = collector.endpoint();
        let sidecar = Sidecar::start_with(often(), &arguments, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
        if served_by(&sidecar.snapshot(), "socket_read").is_none() {
            return skip("refused spans: nothing serves socket_read");
        }
        let (client, server) = stream(&Wire::loopback(Version::Ipv4));
        let slow = read_late(&client, &server, late);
        let (span, _) = traced(&sidecar, &slow);
        let exporter = [("otel.component.type", "otlp_grpc_span_exporter")];
        // Other packets may be slow too, and their spans may be on their way.
        let accepted = Cell::new(0);
        let is_finished = |line: &Line| {
            accepted.set(collector.spans().len());
            let exported = line.total(EXPORTED, &exporter);
            exported > 0.0 && (!takes_spans || exported == accepted.get() as f64)
        };
        let line = sidecar.line("spans with a finished export", is_finished);
        let refused = line.total(EXPORTED, &[exporter[0], ("error.type", "unimplemented")]);
        assert_eq!(refused > 0.0, !takes_spans);
        assert!(collector.deliveries().iter().any(|delivery| delivery.accepted), "metrics are accepted");
        assert_eq!(collector.spans().contains(&span), takes_spans);
        if takes_spans {
            let exported = line.total(EXPORTED, &exporter);
            record(EXPORTED, exported, exactly(accepted.get() as f64));
        }
    }
}
