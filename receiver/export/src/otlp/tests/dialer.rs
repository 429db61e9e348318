//! Tests of connections: certificates that are replaced, and Unix sockets.

use std::{convert::Infallible, fs, path::Path};

use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, UnixListener},
};
use tokio_rustls::TlsAcceptor;
use tonic::codegen::Service as _;

use super::{
    settings,
    tls::{Authority, acceptor, authority, expired, write},
};
use crate::otlp::{
    Items,
    client::Connection,
    dialer::Dialer,
    failure::{FailureKind, Refusal},
    transport::Transport as _,
};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Connects once to a server with this handshake, which sends one byte.
async fn connect(dialer: &Dialer, listener: &TcpListener, server: TlsAcceptor) -> Outcome {
    let serve = async {
        let (stream, _) = listener.accept().await?;
        let mut stream = server.accept(stream).await?;
        stream.write_u8(1).await?;
        stream.shutdown().await
    };
    let request = async {
        let stream = dialer.clone().call("http://collector".parse()?).await?;
        // With TLS 1.3, a refused client certificate fails at the first read.
        let _ = stream.into_inner().read_u8().await?;
        Outcome::Ok(())
    };
    tokio::join!(request, serve).0
}

/// Writes the certificate of an authority, and a client's certificate and key, and returns the variables that name them.
fn certificates(folder: &Path, authority: &Authority) -> Outcome<[(&'static str, String); 3]> {
    let (certificate, key) = authority.issue("node-1")?;
    Ok([
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", write(folder, "ca.pem", &authority.certificate.pem())?),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", write(folder, "client.pem", &certificate)?),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", write(folder, "client.key", &key)?),
    ])
}

/// Returns a dialer with the certificates of an authority, which it writes into a folder.
fn trusting(folder: &Path, authority: &Authority, server: &TcpListener, protocol: &'static [u8]) -> Outcome<Dialer> {
    let endpoint = format!("https://localhost:{}", server.local_addr()?.port());
    let files = certificates(folder, authority)?;
    let mut variables = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())];
    variables.extend(files.iter().map(|(name, path)| (*name, path.as_str())));
    Ok(Dialer::new(&settings(&variables), protocol)?)
}

#[tokio::test]
async fn new_connections_use_renewed_certificates() -> Outcome {
    let (first, second) = (authority()?, authority()?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let folder = tempfile::tempdir()?;
        let dialer = trusting(folder.path(), &first, &listener, protocol)?;
        let server = |authority| acceptor(authority, "localhost", &[protocol]).map_err(|error| error.to_string());
        connect(&dialer, &listener, server(&first)?).await?;
        assert!(connect(&dialer, &listener, server(&second)?).await.is_err(), "another authority");
        certificates(folder.path(), &second)?;
        connect(&dialer, &listener, server(&second)?).await?;
        assert!(connect(&dialer, &listener, server(&first)?).await.is_err(), "the former authority");
        // During a renewal, files may be incomplete or missing.
        write(folder.path(), "ca.pem", "-----BEGIN CERTIFICATE-----")?;
        connect(&dialer, &listener, server(&second)?).await?;
        fs::remove_file(folder.path().join("client.key"))?;
        connect(&dialer, &listener, server(&second)?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn expired_certificates_are_named() -> Outcome {
    let authority = authority()?;
    let folder = tempfile::tempdir()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let dialer = trusting(folder.path(), &authority, &listener, protocol)?;
        let server = expired(&authority, "localhost", &[protocol]).map_err(|error| error.to_string())?;
        let error = connect(&dialer, &listener, server).await.expect_err("no connection").to_string();
        assert!(error.to_lowercase().contains("expired"), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn grpc_requires_a_server_with_http_2() -> Outcome {
    let authority = authority()?;
    let folder = tempfile::tempdir()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let dialer = trusting(folder.path(), &authority, &listener, b"h2")?;
    let server = acceptor(&authority, "localhost", &[]).map_err(|error| error.to_string())?;
    let error = connect(&dialer, &listener, server).await.expect_err("no connection").to_string();
    assert!(error.contains("does not support HTTP/2"), "{error}");
    Ok(())
}

/// Serves one connection by HTTP/1 or HTTP/2, and returns the path of the request. Every path is unknown.
async fn serve(listener: &UnixListener, is_grpc: bool) -> Outcome<String> {
    let (stream, _) = listener.accept().await?;
    let (send, mut paths) = tokio::sync::mpsc::unbounded_channel();
    let service = service_fn(move |request: Request<Incoming>| {
        let _ = send.send(request.uri().path().to_owned());
        std::future::ready(Ok::<_, Infallible>(
            Response::builder().status(404).body(String::new()).expect("a response"),
        ))
    });
    let stream = TokioIo::new(stream);
    if is_grpc {
        tokio::spawn(hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service));
    } else {
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(stream, service));
    }
    paths.recv().await.ok_or_else(|| "no request".into())
}

#[tokio::test]
async fn unix_sockets_serve_either_protocol() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("collector.sock");
    let endpoint = format!("unix://{}", path.display());
    let listener = UnixListener::bind(&path)?;
    for (protocol, path) in
        [("grpc", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"), ("http/protobuf", "/v1/metrics")]
    {
        for variable in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"] {
            let settings = settings(&[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), (variable, &endpoint)]);
            assert_eq!(settings.shown_endpoint(), endpoint);
            let mut client = Connection::new(&settings)?.client(Items::Metrics, settings);
            let (outcome, served) = tokio::join!(client.send(Bytes::new()), serve(&listener, protocol == "grpc"));
            assert_eq!(served?, path);
            assert_eq!(outcome.map_err(|failure| failure.kind), Err(FailureKind::Refused(Refusal::NoReceiver)));
        }
    }
    drop(listener);
    fs::remove_file(&path)?;
    let settings = settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    let failure = Connection::new(&settings)?.client(Items::Metrics, settings).send(Bytes::new()).await;
    let failure = failure.expect_err("nothing listens");
    assert_eq!(failure.kind, FailureKind::Connection);
    assert!(failure.cause.contains("No such file"), "{}", failure.cause);
    Ok(())
}
