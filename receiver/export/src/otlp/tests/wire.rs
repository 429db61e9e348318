//! Servers that are no collectors, and broken connections, for both protocols over sockets.

use std::{convert::Infallible, pin::Pin, task::Poll};

use hyper::{
    Request, Response,
    body::{Body, Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::bytes::Bytes;
use tokio::net::TcpListener;

use super::{settings, tls::authority};
use crate::otlp::{
    Items,
    client::{Client, Connection},
    failure::{Failure, FailureKind, Refusal, Verdict},
    transport::Transport as _,
};

/// Returns a client for a server, with a timeout of half a second.
fn client(protocol: &str, endpoint: &str, authority: Option<&str>) -> Client {
    let mut variables = vec![
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "500"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cret"),
    ];
    variables.extend(authority.map(|path| ("OTEL_EXPORTER_OTLP_CERTIFICATE", path)));
    let settings = settings(&variables);
    Connection::new(&settings).expect("a connection").client(Items::Metrics, settings)
}

#[tokio::test]
async fn a_server_that_never_answers_is_a_timeout() {
    // The backlog accepts connections.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, authority().expect("an authority").certificate.pem()).expect("written");
    for protocol in ["grpc", "http/protobuf"] {
        for (scheme, authority) in [("http", None), ("https", file.to_str())] {
            let mut client = client(protocol, &format!("{scheme}://localhost:{port}"), authority);
            let failure = client.send(Bytes::from_static(b"request")).await.expect_err("no answer");
            assert_eq!((failure.kind, failure.verdict()), (FailureKind::Timeout, Verdict::Retry), "{failure:?}");
            let text = client.destination().describe(&failure);
            assert!(text.contains("OTEL_EXPORTER_OTLP_TIMEOUT") && !text.contains("s3cret"), "{text}");
        }
    }
}

/// A body that fails after its first bytes, which resets the stream.
struct Cut(Option<Bytes>);

impl Body for Cut {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let first = self.0.take();
        Poll::Ready(Some(first.map(Frame::data).ok_or_else(|| std::io::ErrorKind::ConnectionReset.into())))
    }
}

/// Sends a request by gRPC to a server that answers with a status, headers and a body of HTTP/2. The body is cut off if `is_cut`.
async fn answered(status: u16, headers: &[(&str, &str)], body: &'static [u8], is_cut: bool) -> (Failure, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    let response = response.body(()).expect("a response").into_parts().0;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        let service = service_fn(move |_: Request<Incoming>| {
            let body: http_body_util::combinators::BoxBody<Bytes, std::io::Error> = if is_cut {
                http_body_util::BodyExt::boxed(Cut(Some(Bytes::from_static(body))))
            } else {
                let whole = http_body_util::Full::new(Bytes::from_static(body));
                http_body_util::BodyExt::boxed(http_body_util::BodyExt::map_err(
                    whole,
                    |never: Infallible| match never {},
                ))
            };
            std::future::ready(Ok::<_, Infallible>(Response::from_parts(response.clone(), body)))
        });
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    });
    let mut client = client("grpc", &endpoint, None);
    let failure = client.send(Bytes::from_static(b"request")).await.expect_err("no reply of a collector");
    let text = client.destination().describe(&failure);
    (failure, text.replace(&endpoint, "http://collector:4317"))
}

#[tokio::test]
async fn answers_of_web_servers_and_proxies_are_no_replies() {
    use FailureKind::{Connection, Refused};
    let html = ("content-type", "text/html");
    for (status, headers, kind) in [
        (200, vec![html], Refused(Refusal::Protocol)),
        (302, vec![("location", "https://user:s3cret@other.example/?token=s3cret")], Refused(Refusal::Protocol)),
        (400, vec![html], Refused(Refusal::Protocol)),
        (401, vec![], Refused(Refusal::Credentials)),
        (403, vec![], Refused(Refusal::Credentials)),
        (404, vec![html], Refused(Refusal::NoReceiver)),
        (407, vec![], Refused(Refusal::Protocol)),
        (413, vec![], Refused(Refusal::Protocol)),
        (429, vec![], Connection),
        (502, vec![html], Connection),
        (503, vec![], Connection),
        (504, vec![], Connection),
    ] {
        let (failure, text) = answered(status, &headers, b"<h1>s3cret</h1>", false).await;
        assert_eq!(failure.kind, kind, "{status}: {text}");
        assert!(!text.contains("s3cret") && text.contains("http://collector:4317"), "{text}");
    }
}

#[tokio::test]
async fn a_reset_in_a_reply_is_retried() {
    let grpc = [("content-type", "application/grpc")];
    // The prefix of a message of 100 bytes, and a part of the message.
    let (failure, text) = answered(200, &grpc, b"\0\0\0\0\x64abc", true).await;
    assert_eq!(failure.verdict(), Verdict::Retry, "{text}");
}
