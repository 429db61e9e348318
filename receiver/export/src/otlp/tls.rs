//! TLS to the collector.

use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::{Pem, Settings};

/// The remedy if the system's certificates are unusable.
pub(super) const CURE: &str =
    "install the system's CA certificates, or set OTEL_EXPORTER_OTLP_CERTIFICATE to the collector's";

/// Returns the number of certificates in a PEM file; `None` if this build cannot read it.
pub(super) fn certificates(pem: &Pem) -> Option<usize> {
    Some(CertificateDer::pem_slice_iter(&pem.0).filter(Result::is_ok).count())
}

/// Configures an endpoint with the trusted authority and the client's identity.
///
/// # Errors
/// If the certificates or keys are no valid TLS configuration.
pub(super) fn configure(endpoint: Endpoint, settings: &Settings) -> Result<Endpoint, String> {
    let trust = match &settings.authority {
        Some(authority) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&authority.0)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    let tls = match &settings.identity {
        Some(identity) => trust.identity(Identity::from_pem(&identity.certificate.0, &identity.key.0)),
        None => trust,
    };
    endpoint.tls_config(tls).map_err(|error| crate::causes::chain(&error))
}
