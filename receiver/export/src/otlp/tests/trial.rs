//! Tests of trials.

use tonic::transport::{Server, server::TcpIncoming};

use super::{
    server::{Answer, script},
    settings,
    web::{Web, accept, answer},
};
use crate::otlp::{Items, Trial};

/// Returns the problem of an endpoint without its address, or nothing.
async fn problem(protocol: &str, endpoint: &str) -> String {
    let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)];
    let trial = Trial::new(Items::Metrics, settings(&variables)).expect("a trial");
    trial.run().await.err().unwrap_or_default()
}

#[tokio::test]
async fn a_server_of_the_other_protocol_is_named() -> Result<(), Box<dyn std::error::Error>> {
    // An HTTP/1 server refuses the preface of HTTP/2, and closes the connection.
    let bad = |status| super::web::Answer::Close(super::web::response(status, "", b""));
    for (second, end) in [
        (
            accept(),
            "The server there expects OTLP/HTTP: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or use the port of OTLP/gRPC (usually 4317)",
        ),
        (
            answer(404, "", b""),
            "An HTTP/1 server without an OTLP receiver answers there; the port of OTLP/gRPC is usually 4317",
        ),
    ] {
        let web = Web::start([bad(400), second]);
        let problem = problem("grpc", &web.endpoint()).await;
        assert!(problem.ends_with(end), "{problem}");
        assert_eq!(web.received().line, "PRI * HTTP/2.0");
    }
    for (answers, end) in [
        (
            vec![Answer::Accept],
            "The server there expects OTLP/gRPC: set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, or use the port of OTLP/HTTP (usually 4318)",
        ),
        (
            vec![Answer::Refuse(tonic::Status::unimplemented("unknown service"))],
            "A gRPC server without an OTLP receiver answers there; the port of OTLP/HTTP is usually 4318",
        ),
    ] {
        let (script, _received) = script(answers);
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
        let endpoint = format!("http://{}", incoming.local_addr()?);
        let serving = tokio::spawn(Server::builder().add_service(script.service()).serve_with_incoming(incoming));
        let problem = problem("http/json", &endpoint).await;
        assert!(problem.ends_with(end), "{problem}");
        serving.abort();
    }
    Ok(())
}

#[tokio::test]
async fn a_receiver_passes_the_trial() {
    let invalid = answer(400, "content-type: application/json\r\n", b"{\"message\":\"empty\"}");
    for answer in [accept(), invalid] {
        let web = Web::start([answer]);
        assert_eq!(problem("http/json", &web.endpoint()).await, "");
        assert_eq!(web.received().body, b"{}");
    }
    let web = Web::start([answer(401, "", b"")]);
    assert_eq!(problem("http/protobuf", &web.endpoint()).await, "401: Unauthorized. Check OTEL_EXPORTER_OTLP_HEADERS");
    // Plaintext to a port with TLS.
    let text = "content-type: text/plain\r\n";
    let refused = || answer(400, text, b"Client sent an HTTP request to an HTTPS server.\n");
    let web = Web::start([refused(), refused()]);
    let problem = problem("http/protobuf", &web.endpoint()).await;
    assert!(problem.starts_with("400: Bad Request: Client sent an HTTP request to an HTTPS server."), "{problem}");
}
