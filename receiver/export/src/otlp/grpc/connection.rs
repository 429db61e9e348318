//! Connections to the collector.

use std::sync::Arc;

use tonic::transport::{Channel, Endpoint};

use crate::otlp::{Settings, SettingsError, endpoint::without_zone, tcp};

/// Creates channels to one collector. Clones are cheap.
#[derive(Clone)]
pub(in crate::otlp) struct Connector(Arc<dyn Fn() -> Channel + Send + Sync>);

impl Connector {
    /// Creates a connector.
    ///
    /// # Errors
    /// If the certificates or keys are no valid TLS configuration.
    pub(in crate::otlp) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let (endpoint, timeout) = (endpoint(settings)?, settings.timeout);
        Ok(Self::by(move || endpoint.connect_with_connector_lazy(tcp::connector(timeout))))
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

fn endpoint(settings: &Settings) -> Result<Endpoint, SettingsError> {
    // A ping after half of the timeout, and only while a request waits: servers refuse clients that ping without need.
    let half = settings.timeout / 2;
    let plain = Endpoint::from(settings.endpoint.clone())
        .origin(without_zone(&settings.endpoint))
        .connect_timeout(settings.timeout)
        .http2_keep_alive_interval(half)
        .keep_alive_timeout(half)
        .keep_alive_while_idle(false)
        .user_agent(concat!("undercurrent/", env!("CARGO_PKG_VERSION")));
    let configured = match plain {
        Ok(plain) if settings.endpoint.scheme_str() == Some("https") => with_tls(plain, settings),
        plain => plain.map_err(|error| crate::causes::chain(&error)),
    };
    configured.map_err(|problem| SettingsError::tls(settings, problem))
}

/// Configures an endpoint with the trusted authority and the client's identity.
///
/// # Errors
/// If the certificates and keys are no valid TLS configuration.
#[cfg(feature = "tls")]
fn with_tls(endpoint: Endpoint, settings: &Settings) -> Result<Endpoint, String> {
    use tonic::transport::{Certificate, ClientTlsConfig, Identity};
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

/// Returns an error, because this build has no TLS.
#[cfg(not(feature = "tls"))]
fn with_tls(_: Endpoint, _: &Settings) -> Result<Endpoint, String> {
    Err(crate::otlp::tls::MISSING.to_owned())
}
