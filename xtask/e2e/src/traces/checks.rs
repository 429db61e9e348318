//! Checks of traces in Jaeger, and of the collector's output.

use anyhow::{Context as _, ensure};
use opentelemetry_proto::tonic::{metrics::v1::exemplar::Value, trace::v1::Span as Exported};
use xtask_e2e::{
    collector::otlp::{Request, has, histograms},
    jaeger::running::{Span, Trace},
};

use super::LATE;

/// The accepted difference between the SDK's times and the kernel's. Jaeger's times are in microseconds.
const PRECISION: u64 = 50;
const LATENCY: &str = "undercurrent.network.receive.duration";

/// Returns the span of the packet.
pub fn receive(trace: &Trace) -> Option<&Span> {
    trace.spans.iter().find(|span| span.operation_name == "network receive")
}

/// Returns true if the packet waited for a late read.
pub fn has_waited(trace: &Trace) -> bool {
    receive(trace).is_some_and(|packet| packet.duration >= LATE.as_micros() as u64)
}

/// Returns the span of a service.
pub fn span_of<'a>(trace: &'a Trace, service: &str) -> Option<&'a Span> {
    trace.spans.iter().find(|span| trace.processes[&span.process].service_name == service)
}

/// Checks that the packet belongs to the client's span, agrees with the times of the SDK, and names the layer at which it waited.
pub fn request(trace: &Trace, services: &[String; 2], version: &str) -> anyhow::Result<()> {
    let client = span_of(trace, &services[0]).context("no span of the client")?;
    let server = span_of(trace, &services[1]).context("no span of the server")?;
    let packet = waited(trace, version)?;
    ensure!(packet.parent() == Some(client.id.as_str()), "another parent");
    ensure!(server.parent() == Some(client.id.as_str()), "the SDK's spans do not belong together");
    ensure!(packet.start_time + PRECISION >= client.start_time, "the packet is older than its request");
    ensure!(packet.end() <= server.start_time + PRECISION, "the packet was read after the server's span began");
    Ok(())
}

/// Checks that the packet waited for its read, and returns its span.
fn waited<'a>(trace: &'a Trace, version: &str) -> anyhow::Result<&'a Span> {
    let packet = receive(trace).context("no span of the packet")?;
    ensure!(packet.text("undercurrent.network.layer") == Some("socket_read"), "another layer");
    ensure!(packet.text("network.type") == Some(version), "another IP version");
    let steps = trace.spans.iter().filter(|span| span.parent() == Some(packet.id.as_str()));
    let is_step = |span: &&Span| span.operation_name.starts_with("network receive: ");
    let longest = steps.filter(is_step).max_by_key(|step| step.duration).context("no steps")?;
    ensure!(longest.operation_name == "network receive: socket_read", "another step");
    Ok(packet)
}

/// The times of datagrams by the programs.
pub struct Times {
    /// The spans around the sends.
    pub sent: Vec<Span>,
    /// The spans around the reads.
    pub received: Vec<Span>,
}

impl Times {
    /// Checks that a packet is a root, and was sent and read when the programs say.
    pub fn check(&self, trace: &Trace, version: &str) -> anyhow::Result<()> {
        let packet = waited(trace, version)?;
        ensure!(packet.parent().is_none(), "a datagram has a parent");
        let sent = self.sent.iter().filter(|span| contains(span, packet.start_time));
        let mut received = self.received.iter().filter(|span| contains(span, packet.end()));
        // The accepted difference exceeds the time between two datagrams, so several spans can contain one time.
        let numbers: Vec<_> = sent.map(|span| span.text("number")).collect();
        let is_one = received.any(|span| numbers.contains(&span.text("number")));
        ensure!(is_one, "no datagram was sent at the start of the packet and read at its end: {numbers:?} were sent");
        Ok(())
    }
}

/// Returns true if a time is within a span, with the accepted difference.
fn contains(span: &Span, time: u64) -> bool {
    (span.start_time - PRECISION..=span.end() + PRECISION).contains(&time)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns true if the collector's output has the packet. Checks that it is the span that Jaeger shows.
pub fn exported(trace: &Trace, spans: &[Exported]) -> anyhow::Result<bool> {
    let packet = receive(trace).context("no span of the packet")?;
    let Some(span) = spans.iter().find(|span| hexadecimal(&span.span_id) == packet.id) else { return Ok(false) };
    ensure!(hexadecimal(&span.trace_id) == trace.id, "another trace in the collector's output: {span:?}");
    ensure!(hexadecimal(&span.parent_span_id) == packet.parent().unwrap_or_default(), "another parent: {span:?}");
    ensure!(span.start_time_unix_nano / 1000 == packet.start_time, "another start: {span:?}");
    Ok(true)
}

/// Returns true if an exemplar of the reads names the packet, with its latency.
pub fn has_exemplar(trace: &Trace, requests: &[Request]) -> bool {
    let Some(packet) = receive(trace) else { return false };
    let metrics = requests.iter().flat_map(Request::metrics).filter(|(_, metric)| metric.name == LATENCY);
    let points = metrics.flat_map(|(_, metric)| histograms(metric));
    let reads = points.filter(|point| has(&point.attributes, "undercurrent.network.layer", "socket_read"));
    reads.flat_map(|point| &point.exemplars).any(|exemplar| {
        let is_late = matches!(exemplar.value, Some(Value::AsDouble(seconds)) if seconds >= LATE.as_secs_f64());
        is_late && hexadecimal(&exemplar.trace_id) == trace.id && hexadecimal(&exemplar.span_id) == packet.id
    })
}

/// Prints a trace.
pub fn print(trace: &Trace) {
    let mut spans: Vec<&Span> = trace.spans.iter().collect();
    spans.sort_by_key(|span| (span.start_time, std::cmp::Reverse(span.duration)));
    for span in spans {
        let service = &trace.processes[&span.process].service_name;
        println!("  {:<34}{service:<14}{:>10.3} ms", span.operation_name, span.duration as f64 / 1e3);
    }
}
