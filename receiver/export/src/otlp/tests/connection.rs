//! Tests of connections over sockets.

use std::time::Duration;

use prost::bytes::Bytes;

use super::{
    super::{
        grpc::{Connector, Grpc},
        transport::Transport as _,
        *,
    },
    settings,
};

/// A connection that ends during a request is no verdict of the collector.
#[tokio::test]
async fn a_lost_connection_is_retried() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let settings = settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    let connector = Connector::new(&settings).expect("a connector");
    let channel = connector.channel();
    let mut client = Grpc::new(Items::Metrics, settings, connector, channel);
    let serve = async |reset: bool| {
        let (stream, _) = listener.accept().await.expect("a connection");
        let mut connection = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
            .serve_connection(
                hyper_util::rt::TokioIo::new(stream),
                hyper::service::service_fn(move |_| async move {
                    if reset {
                        std::future::pending::<()>().await;
                    }
                    Err::<hyper::Response<String>, _>("the handler failed")
                }),
            );
        // The request has arrived by then, and the socket is closed without an answer.
        let _ = tokio::time::timeout(Duration::from_millis(200), std::pin::Pin::new(&mut connection)).await;
    };
    for reset in [true, false] {
        let (outcome, ()) = tokio::join!(client.send(Bytes::new()), serve(reset));
        let failure = outcome.expect_err("no answer");
        assert_eq!((failure.reason, failure.verdict()), ("unavailable", failure::Verdict::Retry), "{failure:?}");
    }
}
