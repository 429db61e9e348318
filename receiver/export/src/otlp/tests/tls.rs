//! Tests of TLS over sockets, with certificates that the test issues.

use std::{fs, path::Path, time::Duration};

use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
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

struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

fn authority() -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Authority { certificate, issuer: Issuer::new(params, key) })
}

impl Authority {
    /// Issues the PEM certificate and key of a host or client.
    fn issue(&self, name: &str) -> Result<(String, String), rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, &self.issuer)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

type Outcome = Result<crate::telemetry::Delivery, Box<dyn std::error::Error>>;

/// Delivers one snapshot of three points to a server that requires a client certificate from its authority.
async fn deliver(server: &Authority, trusted: &Authority, client: Option<&Authority>) -> Outcome {
    let (certificate, key) = server.issue("localhost")?;
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(certificate, key))
        .client_ca_root(tonic::transport::Certificate::from_pem(server.certificate.pem()));
    let (script, _received) = script([Answer::Accept]);
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let endpoint = format!("https://localhost:{}", incoming.local_addr()?.port());
    let serving = Server::builder().tls_config(tls)?.add_service(script.service()).serve_with_incoming(incoming);
    let serving = tokio::spawn(serving);

    let folder = tempfile::tempdir()?;
    let write = |name: &str, pem: &str| write(folder.path(), name, pem);
    let trusted = write("ca.pem", &trusted.certificate.pem())?;
    let (certificate, key) = client.unwrap_or(server).issue("node-1")?;
    let (certificate, key) = (write("client.pem", &certificate)?, write("client.key", &key)?);
    let mut variables =
        vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_EXPORTER_OTLP_CERTIFICATE", trusted.as_str())];
    if client.is_some() {
        variables.push(("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &certificate));
        variables.push(("OTEL_EXPORTER_OTLP_CLIENT_KEY", &key));
    }
    let bus = Bus::default();
    let output = open(&bus, settings(&variables), None)?;
    let statistics = output.statistics().clone();
    let outputs = Outputs::new(bus, vec![output]);
    publish(&outputs, lost(3, after(1)));
    shutdown(outputs, Duration::from_secs(20)).await;
    serving.abort();
    Ok(statistics.totals())
}

fn write(folder: &Path, name: &str, pem: &str) -> std::io::Result<String> {
    let path = folder.join(name);
    fs::write(&path, pem)?;
    Ok(path.to_string_lossy().into_owned())
}

#[tokio::test]
async fn a_trusted_client_connects_to_a_trusted_server() -> Result<(), Box<dyn std::error::Error>> {
    let ours = authority()?;
    let totals = deliver(&ours, &ours, Some(&ours)).await?;
    assert_eq!(totals.points, [(None, 3)].into());
    Ok(())
}

#[tokio::test]
async fn untrusted_servers_and_clients_are_refused() -> Result<(), Box<dyn std::error::Error>> {
    let (ours, other) = (authority()?, authority()?);
    for (trusted, client) in [(&other, Some(&ours)), (&ours, Some(&other)), (&ours, None)] {
        let totals = deliver(&ours, trusted, client).await?;
        assert_eq!((totals.points(None), totals.points.values().sum::<u64>()), (0, 3), "{totals:?}");
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
