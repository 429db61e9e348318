//! The client's side of TLS, for protocols without a TLS configuration of their own.

use http::Uri;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};

use super::{ClientIdentity, Files, Pem};
use crate::{causes::chain, otlp::endpoint::without_zone};

/// Returns the TLS configuration of a client: the trusted authority or the system's, and the client's identity.
///
/// # Errors
/// If there is no trusted authority, or the identity is invalid.
pub(super) fn config(files: &Files, alpn: &[u8]) -> Result<ClientConfig, String> {
    let versions =
        ClientConfig::builder_with_provider(ring::default_provider().into()).with_safe_default_protocol_versions();
    let roots = roots(files.authority.as_ref())?;
    let builder = versions.map_err(|error| chain(&error))?.with_root_certificates(roots);
    let mut config = match &files.identity {
        Some(ClientIdentity { certificate, key }) => {
            let key = PrivateKeyDer::from_pem_slice(&key.content).map_err(|_| "the client's key is invalid")?;
            builder.with_client_auth_cert(certificates(certificate)?, key).map_err(|error| chain(&error))?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols.push(alpn.to_vec());
    Ok(config)
}

/// Returns the name that the server's certificate must have.
///
/// # Errors
/// If the host of the endpoint is no valid name or address.
pub(super) fn server_name(endpoint: &Uri) -> Result<ServerName<'static>, String> {
    let endpoint = without_zone(endpoint);
    let host = endpoint.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    ServerName::try_from(host).map_err(|error| chain(&error))
}

/// Returns the certificates of the authority, or those of the system.
fn roots(authority: Option<&Pem>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let given = authority.map(certificates).transpose()?;
    let (valid, _) =
        roots.add_parsable_certificates(given.unwrap_or_else(|| rustls_native_certs::load_native_certs().certs));
    if valid == 0 {
        return Err("no valid certificate of an authority was found".to_owned());
    }
    Ok(roots)
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(&pem.content)
        .collect::<Result<_, _>>()
        .map_err(|_| "a certificate is no valid PEM".to_owned())
}
