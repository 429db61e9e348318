//! Payloads of real clients: hyper (h2) and tonic.

use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, metrics_service_client::MetricsServiceClient,
};
use tokio::io::{AsyncReadExt, DuplexStream};
use tonic::{metadata::MetadataValue, transport::Endpoint};
use tower::service_fn;

use super::find;
use crate::{
    LIMIT, Protocols,
    testing::{OTHER, VALUE, context, receive},
};

/// The first request of a connection names the field. A later request can refer to the name in the dynamic table.
#[tokio::test]
async fn the_first_request_of_hyper_has_a_context() {
    let (client, mut server) = tokio::io::duplex(LIMIT);
    let (mut requests, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = |value: &[u8], body: &str| {
        let request = hyper::Request::post("http://shop/orders?id=7").header("traceparent", value);
        request.header("tracestate", "rojo=00f067aa0ba902b7").body(body.to_owned()).unwrap()
    };
    let first = tokio::spawn(requests.send_request(request(VALUE, "the first body")));
    let payload = receive(&mut server, b"the first body").await;
    check_cuts(&payload);
    let second = tokio::spawn(requests.send_request(request(OTHER, "the second body")));
    let payload = receive(&mut server, b"the second body").await;
    assert_eq!(find(&payload), None);
    drop(server);
    first.await.unwrap().unwrap_err();
    second.await.unwrap().unwrap_err();
    connection.await.unwrap().ok();
}

/// A packet may end anywhere.
fn check_cuts(payload: &[u8]) {
    assert_eq!(find(payload), Some(context()));
    let mut found: Vec<_> = (0..payload.len()).map(|cut| find(&payload[..cut])).collect();
    found.dedup();
    assert_eq!(found, [None, Some(context())]);
}

#[tokio::test]
async fn a_call_of_tonic_has_a_context() {
    let (client, mut server) = tokio::io::duplex(LIMIT);
    let mut client = Some(client);
    let connector = service_fn(move |_| {
        let client = client.take().map(TokioIo::new).ok_or(std::io::ErrorKind::ConnectionRefused);
        async { client.map_err(std::io::Error::from) }
    });
    let endpoint = Endpoint::from_static("http://collector:4317").timeout(Duration::from_secs(20));
    let mut metrics = MetricsServiceClient::new(endpoint.connect_with_connector_lazy(connector));
    let mut request = tonic::Request::new(ExportMetricsServiceRequest::default());
    request.metadata_mut().insert("traceparent", MetadataValue::try_from(VALUE).unwrap());
    let call = tokio::spawn(async move { metrics.export(request).await });
    let mut payload = Vec::new();
    while find(&payload).is_none() {
        assert_ne!(server.read_buf(&mut payload).await.unwrap(), 0, "the connection ended");
    }
    check_cuts(&payload);
    let protocols = Protocols { http2: false, ..Protocols::default() };
    assert_eq!(crate::find(&payload, protocols), None);
    assert_eq!(crate::find(&payload, Protocols { http2: true, ..protocols }), Some(context()));
    drop::<DuplexStream>(server);
    call.await.unwrap().unwrap_err();
}
