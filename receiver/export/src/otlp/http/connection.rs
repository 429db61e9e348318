//! Connections to the collector.

use std::{fmt, sync::Arc, time::Duration};

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, Error},
    rt::{TokioExecutor, TokioTimer},
};
use prost::bytes::Bytes;

use crate::otlp::{Settings, SettingsError, dialer::Dialer};

/// The longest time without requests after which a connection is used again. Servers close idle connections, many after one
/// minute, and a request in that moment would fail.
const IDLE: Duration = Duration::from_secs(30);

/// The limit of the head of a response in bytes.
const HEAD: usize = 32 * 1024;

/// The protocol in the TLS handshake (RFC 7301).
const ALPN: &[u8] = b"http/1.1";

/// A pool of connections to one collector. Clones share it.
#[derive(Clone)]
pub(in crate::otlp) struct Pool(Arc<Client<Dialer, Full<Bytes>>>);

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool(..)")
    }
}

impl Pool {
    /// Creates a pool, which connects on first use. Requires a tokio runtime.
    ///
    /// # Errors
    /// If the certificates or keys are no valid TLS configuration.
    pub(in crate::otlp) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let dialer = Dialer::new(settings, ALPN).map_err(|problem| settings.tls_error(problem))?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http1_max_buf_size(HEAD)
            .build(dialer);
        Ok(Self(Arc::new(client)))
    }

    /// Sends a request.
    pub(super) async fn request(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        self.0.request(request).await
    }
}
