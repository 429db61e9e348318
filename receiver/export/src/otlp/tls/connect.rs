//! TLS connections, with the certificates that the files have at the time of the connection.

use std::{
    error::Error,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{
    Files,
    client::{config, server_name},
};
use crate::otlp::{Settings, access::Access, socket::Socket};

/// Opens TLS connections to one server.
pub(in crate::otlp) struct Tls {
    server: ServerName<'static>,
    alpn: &'static [u8],
    access: Access,
    last: Mutex<Configured>,
}

/// The configuration of the last connection.
struct Configured {
    files: Files,
    config: Arc<ClientConfig>,
    /// True if the files that replaced these are invalid or unreadable.
    is_stale: bool,
}

impl Tls {
    /// Prepares connections.
    ///
    /// # Errors
    /// If the certificates and keys are no valid TLS configuration.
    pub(in crate::otlp) fn new(settings: &Settings, alpn: &'static [u8]) -> Result<Self, String> {
        let files = Files { authority: settings.authority.clone(), identity: settings.identity.clone() };
        let last = Configured { config: Arc::new(config(&files, alpn)?), files, is_stale: false };
        let (server, access) = (server_name(&settings.endpoint)?, settings.access.clone());
        Ok(Self { server, alpn, access, last: last.into() })
    }

    /// Performs the handshake on a connection.
    ///
    /// # Errors
    /// If a certificate is refused, or the server selects another protocol.
    pub(in crate::otlp) async fn connect(
        &self,
        stream: TcpStream,
    ) -> Result<Box<dyn Socket>, Box<dyn Error + Send + Sync>> {
        let config = self.config().await;
        let stream = TlsConnector::from(config).connect(self.server.clone(), stream).await?;
        let selected = stream.get_ref().1.alpn_protocol();
        // HTTP/1.1 is the protocol of servers that select none.
        if self.alpn == b"h2" && selected != Some(b"h2") {
            return Err("the server does not support HTTP/2, which gRPC requires (no `h2` in its TLS handshake)".into());
        }
        Ok(Box::new(stream))
    }

    /// Returns the configuration with the present content of the files. Returns the last one if they are invalid.
    async fn config(&self) -> Arc<ClientConfig> {
        let files = self.last().files.clone();
        let read = files.read_again(&self.access).await.map_err(|error| error.to_string());
        let mut last = self.last();
        let changed = match read {
            Ok(read) if read == last.files => Ok(None),
            Ok(read) => config(&read, self.alpn).map(|config| Some((read, config))),
            Err(error) => Err(error),
        };
        match changed {
            Ok(None) => {}
            Ok(Some((files, config))) => {
                tracing::info!("the certificates or keys of the collector changed; new connections use the new files");
                *last = Configured { files, config: Arc::new(config), is_stale: false };
            }
            Err(problem) if last.is_stale => tracing::debug!("cannot read certificates again: {problem}"),
            Err(problem) => {
                last.is_stale = true;
                tracing::warn!(
                    "cannot read the certificates or keys of OTEL_EXPORTER_OTLP_* again: {problem}; new connections use the last \
                     valid ones"
                );
            }
        }
        Arc::clone(&last.config)
    }

    fn last(&self) -> MutexGuard<'_, Configured> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
