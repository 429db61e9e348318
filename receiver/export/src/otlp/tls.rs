//! Certificates and keys for TLS.

use std::fmt;

/// The error of a build without TLS.
#[cfg(not(feature = "tls"))]
pub(super) const MISSING: &str = "this build has no TLS (cargo feature `tls`)";

#[cfg(feature = "tls")]
mod client;

#[cfg(feature = "tls")]
pub(super) use self::client::{client, server_name};

/// The content of a PEM file. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem(pub Vec<u8>);

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pem(..)")
    }
}

/// The client's certificate and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate chain.
    pub certificate: Pem,
    /// The private key.
    pub key: Pem,
}

impl Pem {
    /// Returns the number of certificates in the file; `None` if this build cannot read it.
    #[cfg(feature = "tls")]
    pub(super) fn certificates(&self) -> Option<usize> {
        use rustls_pki_types::{CertificateDer, pem::PemObject as _};
        Some(CertificateDer::pem_slice_iter(&self.0).filter(Result::is_ok).count())
    }

    /// Returns the number of certificates in the file; `None` because this build cannot read it.
    #[cfg(not(feature = "tls"))]
    pub(super) const fn certificates(&self) -> Option<usize> {
        None
    }
}
