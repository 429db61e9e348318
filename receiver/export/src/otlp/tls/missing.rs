//! Builds without TLS.

use tokio::net::TcpStream;

use crate::otlp::{Settings, socket::Socket};

/// TLS, which this build lacks.
pub(in crate::otlp) enum Tls {}

impl Tls {
    /// Returns an error.
    pub(in crate::otlp) fn new(_: &Settings, _: &'static [u8]) -> Result<Self, String> {
        Err("this build has no TLS (cargo feature `tls`)".to_owned())
    }

    /// Is never called, because the type has no value.
    pub(in crate::otlp) async fn connect(
        &self,
        _: TcpStream,
    ) -> Result<Box<dyn Socket>, Box<dyn std::error::Error + Send + Sync>> {
        match *self {}
    }
}
