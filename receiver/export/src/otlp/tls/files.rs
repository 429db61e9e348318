//! The files of certificates and keys.

use std::io;

use super::{ClientIdentity, Pem};
use crate::otlp::access::Access;

/// The files of certificates and keys.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Files {
    /// `None` for the system's certificates.
    pub(super) authority: Option<Pem>,
    pub(super) identity: Option<ClientIdentity>,
}

impl Files {
    /// Reads the files again.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) async fn read_again(&self, access: &Access) -> io::Result<Self> {
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
