//! Connections to the collector.

use std::{fmt, sync::Arc, time::Duration};

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use prost::bytes::Bytes;

use crate::otlp::{
    Settings, SettingsError,
    tcp::{self, Resolver},
    tls,
};

/// The longest time without requests after which a connection is used again. Servers close idle connections, many after one
/// minute, and a request in that moment would fail.
const IDLE: Duration = Duration::from_secs(30);

/// The limit of the head of a response in bytes.
const HEAD: usize = 32 * 1024;

/// The protocol in the TLS handshake (RFC 7301).
#[cfg(feature = "tls")]
const ALPN: &[u8] = b"http/1.1";

#[cfg(feature = "tls")]
type Connector = hyper_rustls::HttpsConnector<HttpConnector<Resolver>>;
#[cfg(not(feature = "tls"))]
type Connector = HttpConnector<Resolver>;

/// A pool of connections to one collector. Clones share it.
#[derive(Clone)]
pub(in crate::otlp) struct Pool(Arc<Client<Connector, Full<Bytes>>>);

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
        let mut tcp = tcp::connector(settings.timeout);
        tcp.set_connect_timeout(Some(settings.timeout));
        let connector = secured(tcp, settings).map_err(|problem| SettingsError::tls(settings, problem))?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http1_max_buf_size(HEAD)
            .build(connector);
        Ok(Self(Arc::new(client)))
    }

    /// Sends a request.
    pub(super) async fn request(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        self.0.request(request).await
    }
}

/// Adds TLS to a connector, for endpoints with the scheme `https`.
///
/// # Errors
/// If the certificates and keys are no valid TLS configuration.
#[cfg(feature = "tls")]
fn secured(tcp: HttpConnector<Resolver>, settings: &Settings) -> Result<Connector, String> {
    use hyper_rustls::{FixedServerNameResolver, HttpsConnector};

    let config = tls::client(settings, ALPN)?;
    if settings.endpoint.scheme_str() != Some("https") {
        return Ok((tcp, config).into());
    }
    let name = FixedServerNameResolver::new(tls::server_name(&settings.endpoint)?);
    Ok(HttpsConnector::new(tcp, config, false, Arc::new(name)))
}

/// Returns an error for endpoints with the scheme `https`, because this build has no TLS.
#[cfg(not(feature = "tls"))]
fn secured(tcp: HttpConnector<Resolver>, settings: &Settings) -> Result<Connector, String> {
    match settings.endpoint.scheme_str() {
        Some("https") => Err(tls::MISSING.to_owned()),
        _ => Ok(tcp),
    }
}
