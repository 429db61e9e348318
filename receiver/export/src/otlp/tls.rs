//! Certificates and keys for TLS.

use std::{fmt, io, path::PathBuf};

#[cfg(feature = "tls")]
use super::access::Access;
use crate::files::read_regular;

/// The limit of a certificate or key file in bytes: four times the size of a bundle of all public authorities.
const LIMIT: u64 = 1 << 20;

#[cfg(feature = "tls")]
mod client;
#[cfg(feature = "tls")]
mod connect;
#[cfg(not(feature = "tls"))]
mod missing;

#[cfg(feature = "tls")]
pub(super) use self::connect::Tls;
#[cfg(not(feature = "tls"))]
pub(super) use self::missing::Tls;

/// A PEM file. `Debug` hides its content.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The path of the file.
    pub path: PathBuf,
    content: Vec<u8>,
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({})", self.path.display())
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
    /// Reads a file with the privileges of this process.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn read(path: PathBuf) -> io::Result<Self> {
        let content = read_regular(&path, LIMIT)?;
        Ok(Self { path, content })
    }

    /// Returns the present content of the file.
    ///
    /// # Errors
    /// If the file cannot be read.
    #[cfg(feature = "tls")]
    async fn read_again(&self, access: &Access) -> io::Result<Self> {
        Ok(Self { path: self.path.clone(), content: access.read(self.path.clone(), LIMIT).await? })
    }

    /// Returns the number of certificates in the file; `None` if this build cannot read it.
    #[cfg(feature = "tls")]
    pub(super) fn certificates(&self) -> Option<usize> {
        use rustls_pki_types::{CertificateDer, pem::PemObject as _};
        Some(CertificateDer::pem_slice_iter(&self.content).filter(Result::is_ok).count())
    }

    /// Returns the number of certificates in the file; `None` because this build cannot read it.
    #[cfg(not(feature = "tls"))]
    pub(super) const fn certificates(&self) -> Option<usize> {
        None
    }
}

/// The files of certificates and keys.
#[cfg(feature = "tls")]
#[derive(Clone, PartialEq, Eq)]
struct Files {
    /// `None` for the system's certificates.
    authority: Option<Pem>,
    identity: Option<ClientIdentity>,
}

#[cfg(feature = "tls")]
impl Files {
    /// Reads the files again.
    ///
    /// # Errors
    /// If a file cannot be read.
    async fn read_again(&self, access: &Access) -> io::Result<Self> {
        let mut files = self.clone();
        if let Some(authority) = &mut files.authority {
            *authority = authority.read_again(access).await?;
        }
        if let Some(ClientIdentity { certificate, key }) = &mut files.identity {
            (*certificate, *key) = (certificate.read_again(access).await?, key.read_again(access).await?);
        }
        Ok(files)
    }
}
