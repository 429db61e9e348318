//! Tests of TLS over sockets, with certificates that the test issues.

use std::{fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{RootCertStore, ServerConfig, crypto::ring, server::WebPkiClientVerifier},
};
use tonic::transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming};

use super::{
    super::open,
    publish,
    server::{Answer, script},
    settings, shutdown,
};
use crate::{
    Bus, Outputs,
    testing::{after, lost},
};

pub(super) struct Authority {
    pub(super) certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

pub(super) fn authority() -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Authority { certificate, issuer: Issuer::new(params, key) })
}

impl Authority {
    /// Issues the PEM certificate and key of a host or client.
    pub(super) fn issue(&self, name: &str) -> Result<(String, String), rcgen::Error> {
        self.sign(CertificateParams::new(vec![name.to_owned()])?)
    }

    fn sign(&self, params: CertificateParams) -> Result<(String, String), rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

const PROTOCOLS: [&str; 2] = ["grpc", "http/protobuf"];

type Outcome = Result<crate::telemetry::Delivery, Box<dyn std::error::Error>>;

type Served = Result<(SocketAddr, tokio::task::JoinHandle<()>), Box<dyn std::error::Error>>;

/// Starts a gRPC server that requires a client certificate from its authority.
fn serve_grpc(server: &Authority, name: &str) -> Served {
    let (certificate, key) = server.issue(name)?;
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(certificate, key))
        .client_ca_root(tonic::transport::Certificate::from_pem(server.certificate.pem()));
    let (script, received) = script([Answer::Accept]);
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let address = incoming.local_addr()?;
    let serving = Server::builder().tls_config(tls)?.add_service(script.service()).serve_with_incoming(incoming);
    let serving = async {
        let _ = serving.await;
        drop(received);
    };
    Ok((address, tokio::spawn(serving)))
}

/// Returns the handshake of a server that requires a client certificate from its authority, and supports these protocols.
pub(super) fn acceptor(
    server: &Authority,
    name: &str,
    protocols: &[&[u8]],
) -> Result<TlsAcceptor, Box<dyn std::error::Error>> {
    accepting(server, server.issue(name)?, protocols)
}

/// Returns the handshake of a server with an expired certificate.
pub(super) fn expired(
    server: &Authority,
    name: &str,
    protocols: &[&[u8]],
) -> Result<TlsAcceptor, Box<dyn std::error::Error>> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2020, 2, 1));
    accepting(server, server.sign(params)?, protocols)
}

fn accepting(
    server: &Authority,
    (certificate, key): (String, String),
    protocols: &[&[u8]],
) -> Result<TlsAcceptor, Box<dyn std::error::Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(server.certificate.der().clone())?;
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build()?;
    let certificate = rustls_pki_types::CertificateDer::from_pem_slice(certificate.as_bytes())?;
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Starts an HTTP/1 server that requires a client certificate from its authority.
async fn serve_http(server: &Authority, name: &str) -> Served {
    let acceptor = acceptor(server, name, &[])?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let accept = |_| async { Ok::<_, std::convert::Infallible>(hyper::Response::new(String::new())) };
            let service = hyper::service::service_fn(accept);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    };
    Ok((address, tokio::spawn(serving)))
}

/// A server with a certificate for a name, the authority that the client trusts, and the authority of the client.
struct Parties<'a> {
    server: &'a Authority,
    name: &'a str,
    trusted: &'a Authority,
    client: Option<&'a Authority>,
}

/// Delivers one snapshot of three points to a server that requires a client certificate from its authority.
async fn deliver(protocol: &str, parties: Parties<'_>) -> Outcome {
    let Parties { server, name, trusted, client } = parties;
    let (address, serving) =
        if protocol == "grpc" { serve_grpc(server, name)? } else { serve_http(server, name).await? };
    let endpoint = format!("https://localhost:{}", address.port());

    let folder = tempfile::tempdir()?;
    let write = |name: &str, pem: &str| write(folder.path(), name, pem);
    let trusted = write("ca.pem", &trusted.certificate.pem())?;
    let (certificate, key) = client.unwrap_or(server).issue("node-1")?;
    let (certificate, key) = (write("client.pem", &certificate)?, write("client.key", &key)?);
    let mut variables = vec![
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", trusted.as_str()),
    ];
    if client.is_some() {
        variables.push(("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &certificate));
        variables.push(("OTEL_EXPORTER_OTLP_CLIENT_KEY", &key));
    }
    let bus = Bus::default();
    let (output, _) = open(&bus, settings(&variables), None)?;
    let statistics = output.statistics().clone();
    let outputs = Outputs::new(bus, vec![output]);
    publish(&outputs, lost(3, after(1)));
    shutdown(outputs, Duration::from_secs(20)).await;
    serving.abort();
    Ok(statistics.totals())
}

pub(super) fn write(folder: &Path, name: &str, pem: &str) -> std::io::Result<String> {
    let path = folder.join(name);
    fs::write(&path, pem)?;
    Ok(path.to_string_lossy().into_owned())
}

#[tokio::test]
async fn a_trusted_client_connects_to_a_trusted_server() -> Result<(), Box<dyn std::error::Error>> {
    let ours = &authority()?;
    for protocol in PROTOCOLS {
        let parties = Parties { server: ours, name: "localhost", trusted: ours, client: Some(ours) };
        let totals = deliver(protocol, parties).await?;
        assert_eq!(totals.points, [(None, 3)].into(), "{protocol}");
    }
    Ok(())
}

#[tokio::test]
async fn untrusted_servers_and_clients_are_refused() -> Result<(), Box<dyn std::error::Error>> {
    let (ours, other) = (&authority()?, &authority()?);
    for protocol in PROTOCOLS {
        for (name, trusted, client) in [
            ("localhost", other, Some(ours)),
            ("localhost", ours, Some(other)),
            ("localhost", ours, None),
            ("other.example", ours, Some(ours)),
        ] {
            let totals = deliver(protocol, Parties { server: ours, name, trusted, client }).await?;
            assert_eq!((totals.points(None), totals.points.values().sum::<u64>()), (0, 3), "{protocol}: {totals:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn invalid_certificate_files_are_refused_at_start() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let junk = write(folder.path(), "junk.pem", "-----BEGIN CERTIFICATE-----\n####\n-----END CERTIFICATE-----\n")?;
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", "https://localhost:1"), ("OTEL_EXPORTER_OTLP_CERTIFICATE", &junk)];
    let lookup = |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (name, (*value).to_owned()));
    let shown = super::super::Settings::from_variables(
        super::super::Items::Metrics,
        lookup,
        &super::super::FileSettings::default(),
    )
    .map_or_else(|error| error.to_string(), |_| String::new());
    assert!(shown.starts_with("OTEL_EXPORTER_OTLP_CERTIFICATE") && shown.contains("no valid certificate"), "{shown}");
    Ok(())
}
