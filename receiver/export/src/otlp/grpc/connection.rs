//! Connections to the collector.

use std::sync::Arc;

use tonic::transport::{Channel, Endpoint};

use crate::otlp::{Settings, SettingsError, dialer::Dialer, endpoint::without_zone};

/// The protocol in the TLS handshake (RFC 7301).
const ALPN: &[u8] = b"h2";

/// Creates channels to one collector. Clones are cheap.
#[derive(Clone)]
pub(in crate::otlp) struct Connector(Arc<dyn Fn() -> Channel + Send + Sync>);

impl Connector {
    /// Creates a connector.
    ///
    /// # Errors
    /// If the certificates or keys are no valid TLS configuration.
    pub(in crate::otlp) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let prepared = endpoint(settings).and_then(|endpoint| Ok((endpoint, Dialer::new(settings, ALPN)?)));
        let (endpoint, dialer) = prepared.map_err(|problem| settings.tls_error(problem))?;
        Ok(Self::by(move || endpoint.connect_with_connector_lazy(dialer.clone())))
    }

    /// Creates a connector from a function that opens a channel.
    pub(in crate::otlp) fn by(connect: impl Fn() -> Channel + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }

    /// Returns a channel that connects on first use, and again after its connection ended.
    pub(in crate::otlp) fn channel(&self) -> Channel {
        (self.0)()
    }
}

fn endpoint(settings: &Settings) -> Result<Endpoint, String> {
    // A ping after half of the timeout, and only while a request waits: servers refuse clients that ping without need.
    let half = settings.timeout / 2;
    // The dialer adds TLS. The library refuses `https` without its own TLS, so only the origin of requests has this scheme.
    Endpoint::from_static("http://collector")
        .origin(without_zone(&settings.endpoint))
        .connect_timeout(settings.timeout)
        .http2_keep_alive_interval(half)
        .keep_alive_timeout(half)
        .keep_alive_while_idle(false)
        .user_agent(concat!("undercurrent/", env!("CARGO_PKG_VERSION")))
        .map_err(|error| crate::causes::chain(&error))
}
