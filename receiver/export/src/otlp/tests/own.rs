//! Tests of the delivery of the sidecar's own logs over HTTP.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_sdk::Resource;
use prost::Message as _;
use tracing_subscriber::layer::SubscriberExt as _;

use super::web::{Answer, Web, accept, answer};
use crate::{
    Statistics,
    otlp::{FileSettings, Items, OwnTelemetry, Settings},
};

/// Delivers one log record. Returns the server and the outcomes.
async fn deliver(protocol: &str, answers: impl IntoIterator<Item = Answer>) -> (Web, Statistics) {
    let web = Web::start(answers);
    let endpoint = web.endpoint();
    let variables = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-token=abc"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1000"),
    ];
    let lookup = |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (name, (*value).to_owned()));
    let settings = Settings::from_variables(Items::Logs, lookup, &FileSettings::default()).expect("settings");
    let statistics = Statistics::new("otlp");
    let own = OwnTelemetry::new(&settings, None, statistics.clone()).expect("an exporter");
    let (layers, running) = own.start(&Resource::builder_empty().build()).expect("a thread");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layers), || {
        tracing::warn!("a message");
    });
    let ended = tokio::task::spawn_blocking(move || running.end(Duration::from_secs(10)));
    ended.await.expect("the processors end");
    (web, statistics)
}

#[tokio::test]
async fn logs_arrive_in_either_encoding() {
    let (web, statistics) = deliver("http/protobuf", [accept()]).await;
    let received = web.received();
    assert_eq!((&*received.line, received.header("x-token")), ("POST /v1/logs HTTP/1.1", Some("abc")));
    let request = ExportLogsServiceRequest::decode(&*received.body).expect("protobuf");
    assert_eq!(request.resource_logs[0].scope_logs[0].log_records.len(), 1);
    let totals = statistics.totals();
    assert_eq!((totals.logs, totals.exporters.logs), ([(None, 1)].into(), "otlp_http_log_exporter"));

    let (web, statistics) = deliver("http/json", [answer(200, "content-type: application/json\r\n", b"{}")]).await;
    let received = web.received();
    assert_eq!(received.header("content-type"), Some("application/json"));
    assert!(String::from_utf8_lossy(&received.body).contains("a message"));
    assert_eq!(statistics.totals().logs, [(None, 1)].into());
}

#[tokio::test]
async fn failures_of_logs_are_counted_by_status() {
    for (answer, reason) in
        [(answer(404, "", b""), "404"), (Answer::Send(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()), "invalid_response")]
    {
        // The exporter retries after a failed connection.
        let (_web, statistics) = deliver("http/protobuf", vec![answer; 8]).await;
        assert_eq!(statistics.totals().logs, [(Some(reason), 1)].into());
    }
}
