//! Connections to the collector.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper_util::client::legacy::connect::{
    HttpConnector,
    dns::{GaiResolver, Name},
};
use tonic::{
    codegen::Service,
    transport::{Channel, Endpoint},
};

use crate::otlp::{Settings, SettingsError, endpoint::without_zone};

/// Idle time before a keep-alive segment of TCP: shorter than common timeouts of firewalls and load balancers.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

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
        Ok(Self::by(move || endpoint.connect_with_connector_lazy(tcp(timeout))))
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

/// Returns the connector of TCP. A connection ends if the other end confirms nothing within the timeout of a request. TCP
/// alone repeats segments for a quarter of an hour.
fn tcp(timeout: Duration) -> HttpConnector<Resolver> {
    let mut tcp = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
    // The scheme `https` is handled above TCP.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    tcp.set_tcp_user_timeout(Some(timeout));
    tcp
}

/// Resolves host names and IPv6 addresses with a zone. A URI has the zone percent-encoded (RFC 6874), and
/// `getaddrinfo(3)` expects it decoded.
#[derive(Clone)]
struct Resolver(GaiResolver);

impl Service<Name> for Resolver {
    type Response = <GaiResolver as Service<Name>>::Response;
    type Error = <GaiResolver as Service<Name>>::Error;
    type Future = <GaiResolver as Service<Name>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let decoded = name.as_str().replace("%25", "%").parse().unwrap_or(name);
        self.0.call(decoded)
    }
}

/// The remedy for a failure without a configured authority.
const WITHOUT_AUTHORITY: &str = if cfg!(feature = "tls") {
    "install the system's CA certificates, or set OTEL_EXPORTER_OTLP_CERTIFICATE to the collector's"
} else {
    "use a plaintext `http://` endpoint, or a build with the feature"
};

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
    configured.map_err(|problem| SettingsError::Tls {
        endpoint: settings.endpoint.to_string(),
        problem,
        cure: if settings.authority.is_none() {
            WITHOUT_AUTHORITY
        } else {
            "check that the files of OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY are PEM"
        },
    })
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
    Err("this build has no TLS (cargo feature `tls`)".to_owned())
}
