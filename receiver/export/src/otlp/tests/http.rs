//! Tests of OTLP over HTTP with a scripted server.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::{Message as _, bytes::Bytes};

use super::{
    publish, settings, shutdown,
    web::{Answer, Web, accept, answer, response},
};
use crate::{
    Bus, Outputs,
    otlp::{
        client::{Client, Connection},
        failure::{Failure, FailureKind, LONGEST_THROTTLE as LONGEST, Refusal, Verdict},
        open,
        transport::{Reply, Transport as _},
        *,
    },
    testing::{after, batch, lost},
};

const PROTOBUF: &str = "content-type: application/x-protobuf\r\n";
const JSON: &str = "content-type: application/json\r\n";

/// Returns a client for metrics with a timeout of a second.
fn client(web: &Web, variables: &[(&str, &str)]) -> Client {
    let endpoint = web.endpoint();
    let all = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1000"),
    ];
    let settings = settings(&[variables, &all].concat());
    Connection::new(&settings).expect("a connection").client(Items::Metrics, settings)
}

/// Sends one request, and returns the outcome.
async fn outcome(answer: Answer) -> Result<Reply, Failure> {
    let web = Web::start([answer]);
    client(&web, &[]).send(Bytes::from_static(b"request")).await
}

/// Returns the failure of one request, with its message for the log.
async fn failure(answer: Answer) -> (Failure, String) {
    let web = Web::start([answer]);
    let mut client = client(&web, &[]);
    let failure = client.send(Bytes::new()).await.expect_err("a failure");
    let text = client.destination().describe(&failure).replace(&web.endpoint(), "http://collector:4318");
    assert!(!text.contains("gRPC (4317)?") || text.contains("OTLP/HTTP"), "{text}");
    (failure, text)
}

#[tokio::test]
async fn requests_have_path_headers_and_encoding() {
    let web = Web::start([accept(), accept()]);
    let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc,Content-Type=text/plain");
    let mut client = client(&web, &[headers, ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")]);
    for _ in 0..2 {
        assert_eq!(client.send(Bytes::from_static(b"request")).await, Ok(Reply::default()));
    }
    let [first, second] = [web.received(), web.received()];
    assert_eq!(first.line, "POST /v1/metrics HTTP/1.1");
    assert_eq!((first.connection, second.connection), (0, 0), "the connection is used again");
    assert_eq!(first.header("host"), web.endpoint().strip_prefix("http://"));
    assert_eq!(first.header("authorization"), Some("Bearer abc"));
    assert_eq!(first.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(first.header("content-encoding"), Some("gzip"));
    assert!(first.header("user-agent").is_some_and(|agent| agent.starts_with("undercurrent/")));
    assert_eq!(first.body[..2], [0x1f, 0x8b], "the body is gzip");
}

/// Delivers metrics and spans, and returns both bodies.
async fn deliver(protocol: &str) -> [Vec<u8>; 2] {
    let media = if protocol == "http/json" { JSON } else { PROTOBUF };
    let body: &[u8] = if protocol == "http/json" { b"{}" } else { b"" };
    let web = Web::start([answer(200, media, body), answer(200, media, body)]);
    let endpoint = web.endpoint();
    let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)];
    let lookup = |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (name, (*value).to_owned()));
    let spans = Settings::from_variables(Items::Spans, lookup, &FileSettings::default()).expect("settings");
    let bus = Bus::default();
    let (output, _) = open(&bus, settings(&variables), Some(spans)).expect("an output");
    let statistics = output.statistics().clone();
    let outputs = Outputs::new(bus, vec![output]);
    publish(&outputs, lost(3, after(1)));
    let metrics = tokio::task::spawn_blocking(move || (web.received(), web)).await.expect("a request");
    outputs.bus().publish_spans(&batch(2).into());
    let spans = tokio::task::spawn_blocking(move || metrics.1.received()).await.expect("a request");
    shutdown(outputs, Duration::from_secs(20)).await;
    let totals = statistics.totals();
    assert_eq!((totals.points, totals.spans), ([(None, 3)].into(), [(None, 2)].into()));
    assert_eq!((&*metrics.0.line, &*spans.line), ("POST /v1/metrics HTTP/1.1", "POST /v1/traces HTTP/1.1"));
    assert_eq!(totals.exporters.metrics.contains("json"), protocol == "http/json");
    [metrics.0.body, spans.body]
}

#[tokio::test]
async fn metrics_and_spans_arrive_in_either_encoding() {
    let [metrics, spans] = deliver("http/protobuf").await;
    let decoded = ExportMetricsServiceRequest::decode(&*metrics).expect("protobuf");
    assert_eq!((decoded.resource_metrics.len(), spans.is_empty()), (1, false));
    let [metrics, spans] = deliver("http/json").await;
    assert_eq!(serde_json::from_slice::<ExportMetricsServiceRequest>(&metrics).expect("JSON"), decoded);
    let spans: serde_json::Value = serde_json::from_slice(&spans).expect("JSON");
    let id = &spans["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"];
    assert_eq!(id.as_str().map(str::len), Some(32), "ids are hexadecimal: {spans}");
}

#[tokio::test]
async fn statuses_have_the_reaction_of_the_specification() {
    use FailureKind::{Refused, Retryable, TooLarge};
    for (status, kind) in [
        (400, Refused(Refusal::Content)),
        (401, Refused(Refusal::Credentials)),
        (403, Refused(Refusal::Credentials)),
        (404, Refused(Refusal::NoReceiver)),
        (405, Refused(Refusal::NoReceiver)),
        (408, Refused(Refusal::Other)),
        (413, TooLarge),
        (415, Refused(Refusal::Encoding)),
        (418, Refused(Refusal::Other)),
        (429, Retryable),
        (500, Refused(Refusal::Other)),
        (501, Refused(Refusal::NoReceiver)),
        (502, Retryable),
        (503, Retryable),
        (504, Retryable),
        (505, Refused(Refusal::Protocol)),
        (599, Refused(Refusal::Other)),
    ] {
        let (failure, _) = failure(answer(status, PROTOBUF, b"")).await;
        assert_eq!(failure.kind, kind, "{status}");
        let expected = if [418, 599].contains(&status) { "_OTHER".to_owned() } else { status.to_string() };
        assert_eq!(failure.reason, expected);
    }
    for status in [201, 202, 299] {
        assert_eq!(outcome(answer(status, PROTOBUF, b"")).await, Ok(Reply::default()), "{status}");
    }
    // These statuses have no body.
    assert_eq!(outcome(Answer::Send(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())).await, Ok(Reply::default()));
}

#[tokio::test]
async fn retry_after_delays_the_next_attempt() {
    for status in [429, 502, 503, 504] {
        let (failure, _) = failure(answer(status, "retry-after: 7\r\n", b"")).await;
        assert_eq!(failure.verdict(), Verdict::Throttled(Duration::from_secs(7)));
    }
    let later = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(100));
    let (failure_at, _) = failure(answer(503, &format!("retry-after: {later}\r\n"), b"")).await;
    let delay = failure_at.delay.expect("a delay").as_secs();
    assert!((90..=100).contains(&delay), "{delay}");
    for ignored in ["0", "-1", "", "soon", "Thu, 01 Jan 1970 00:00:00 GMT", "\u{e9}"] {
        let (failure, _) = failure(answer(429, &format!("retry-after: {ignored}\r\n"), b"")).await;
        assert_eq!(failure.verdict(), Verdict::Retry, "`{ignored}`");
    }
    for endless in ["18446744073709551615", "99999999999999999999999"] {
        let (failure, _) = failure(answer(429, &format!("retry-after: {endless}\r\n"), b"")).await;
        assert_eq!(failure.verdict(), Verdict::Throttled(LONGEST));
    }
    let (failure, _) = failure(answer(400, "retry-after: 7\r\n", b"")).await;
    assert_eq!(failure.verdict(), Verdict::Permanent);
}

#[tokio::test]
async fn rejected_items_of_a_partial_success_are_read() {
    // `partial_success` with 2 rejected points and the message "old".
    let reply = b"\x0a\x07\x08\x02\x12\x03old";
    let rejected = |rejected, message: &str| Ok(Reply { rejected, message: message.to_owned() });
    assert_eq!(outcome(answer(200, PROTOBUF, reply)).await, rejected(2, "old"));
    for (body, expected) in [
        (r#"{"partialSuccess":{"rejectedDataPoints":"2","errorMessage":"old"}}"#, rejected(2, "old")),
        (r#"{"partialSuccess":{"rejectedSpans":3}}"#, rejected(3, "")),
        (r#"{"partialSuccess":{"rejectedLogRecords":"-3","errorMessage":"warning","x":[]}}"#, rejected(0, "warning")),
        (r#"{"partialSuccess":null}"#, rejected(0, "")),
        (r#"{"partialSuccess":{"rejectedDataPoints":1e99}}"#, rejected(0, "")),
        ("[[[[", rejected(0, "")),
        ("", rejected(0, "")),
    ] {
        assert_eq!(outcome(answer(200, JSON, body.as_bytes())).await, expected, "{body}");
    }
    assert_eq!(outcome(answer(200, PROTOBUF, b"\xff\xff")).await, rejected(0, ""));
}

/// Statuses with bodies of servers and proxies.
fn bodies() -> [Answer; 10] {
    let long = format!("{{\"message\":\"{}\"}}", "a\\n".repeat(10_000));
    let status =
        tonic_types::Status { code: 8, message: "queue\nERROR forged\u{1b}[2J".to_owned(), details: Vec::new() };
    let location = "location: https://user:s3cret@other.example/v1/metrics?token=s3cret\r\n";
    [
        answer(503, PROTOBUF, &status.encode_to_vec()),
        answer(401, JSON, br#"{"code":16,"message":"unknown token"}"#),
        answer(400, JSON, long.as_bytes()),
        answer(
            400,
            "content-type: text/plain; charset=utf-8\r\n",
            b"Client sent an HTTP request to an HTTPS server.\n",
        ),
        answer(404, "content-type: text/html\r\n", b"<h1>Not found</h1>"),
        answer(415, "", b""),
        answer(502, "content-type: text/html\r\n", b"<h1>nginx</h1>"),
        answer(308, location, b""),
        answer(301, "location: /elsewhere\r\n", b""),
        answer(200, "content-type: text/html\r\n", b"<h1>It works!</h1>"),
    ]
}

#[tokio::test]
async fn messages_have_cause_and_remedy_and_are_safe() {
    let mut lines = Vec::new();
    for answer in bodies() {
        let (_, text) = failure(answer).await;
        assert!(!text.contains("s3cret") && !text.contains(char::is_control), "{text}");
        let cut = text.replace(&"a\\n".repeat(100), "");
        lines.push(cut);
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[tokio::test]
async fn a_connection_without_answers_is_replaced() {
    let web = Web::start([accept(), Answer::Hang, accept(), Answer::Hang]);
    let mut client = client(&web, &[]);
    let mut connections = Vec::new();
    for expected in [None, Some("timeout"), None] {
        let outcome = client.send(Bytes::new()).await;
        assert_eq!(outcome.err().map(|failure| failure.reason), expected);
        connections.push(web.received().connection);
    }
    assert_eq!(connections, [0, 0, 1]);
    let began = Instant::now();
    let failure = client.send(Bytes::new()).await.expect_err("a timeout");
    assert_eq!((failure.kind, failure.verdict()), (FailureKind::Timeout, Verdict::Retry));
    assert!((900..5000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}

#[tokio::test]
async fn broken_connections_are_retried() {
    let cut = &response(200, PROTOBUF, &[0; 100])[..90];
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
    for answer in [
        Answer::Close(Vec::new()),
        Answer::Close(b"HTTP/1.1 200".to_vec()),
        Answer::Close(cut.to_vec()),
        Answer::Reset(Vec::new()),
        Answer::Reset(cut.to_vec()),
        Answer::Send(chunked.to_vec()),
    ] {
        let (failure, text) = failure(answer).await;
        assert_eq!((failure.reason, failure.verdict()), ("connection_error", Verdict::Retry), "{text}");
    }
    // The status is known even if its message is cut off.
    let cut = &response(400, PROTOBUF, &[0; 100])[..90];
    assert_eq!(failure(Answer::Close(cut.to_vec())).await.0.reason, "400");
}

#[tokio::test]
async fn a_closed_idle_connection_is_replaced() {
    let web = Web::start([Answer::Close(response(200, PROTOBUF, b"")), accept()]);
    let mut client = client(&web, &[]);
    assert_eq!(client.send(Bytes::new()).await, Ok(Reply::default()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(client.send(Bytes::new()).await, Ok(Reply::default()));
    assert_eq!([web.received().connection, web.received().connection], [0, 1]);
}

#[tokio::test]
async fn answers_of_other_protocols_are_named() {
    // The settings of an HTTP/2 server, a banner, and no HTTP at all.
    for bytes in [&b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0"[..], b"SSH-2.0-OpenSSH_9.6\r\n", &[0xff; 300]] {
        let (failure, text) = failure(Answer::Send(bytes.to_vec())).await;
        assert_eq!((failure.reason, failure.verdict()), ("invalid_response", Verdict::Permanent), "{text}");
        assert!(text.ends_with("Is that port OTLP/HTTP (usually 4318), and not OTLP/gRPC (4317)?"), "{text}");
    }
}

#[tokio::test]
async fn endless_answers_are_cut_off() {
    let endless = |head: &str| Answer::Endless(head.as_bytes().to_vec(), Duration::ZERO);
    let began = Instant::now();
    let length = "content-length: 99999999999\r\n\r\n";
    assert_eq!(failure(endless(&format!("HTTP/1.1 200 OK\r\n{length}"))).await.0.reason, "invalid_response");
    assert_eq!(failure(endless(&format!("HTTP/1.1 503 X\r\n{length}"))).await.0.verdict(), Verdict::Retry);
    assert_eq!(failure(endless("HTTP/1.1 200 OK\r\nx: ")).await.0.reason, "invalid_response");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let slow = Answer::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), Duration::from_millis(10));
    assert_eq!(failure(slow).await.0.reason, "timeout");
}

#[tokio::test]
async fn a_slow_reader_has_until_the_timeout() {
    let body = Bytes::from(vec![0; 4 << 20]);
    for (pace, expected) in [(1 << 20, None), (1 << 10, Some("timeout"))] {
        let web = Web::start([Answer::ReadSlowly(pace, response(200, PROTOBUF, b""))]);
        let outcome = client(&web, &[]).send(body.clone()).await;
        assert_eq!(outcome.err().map(|failure| failure.reason), expected, "{pace} bytes per millisecond");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Web::start([accept()]);
    let web = Web::start([answer(307, &format!("location: {}/v1/metrics\r\n", other.endpoint()), b""), accept()]);
    let mut client = client(&web, &[]);
    let failure = client.send(Bytes::new()).await.expect_err("a redirect");
    assert_eq!((failure.kind, failure.reason), (FailureKind::Refused(Refusal::Redirect), "307"));
    assert!(failure.cause.contains(&other.endpoint()), "{}", failure.cause);
    assert_eq!(client.send(Bytes::new()).await, Ok(Reply::default()));
    assert_eq!([web.received().connection, web.received().connection], [0, 0]);
}
