//! The channel to the collector.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use super::{Settings, SettingsError, tls};

/// Idle time before a keep-alive ping: shorter than common timeouts of firewalls and load balancers.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Returns a channel that connects on first use, and reconnects after the connection is lost.
///
/// # Errors
/// If the certificates or keys are no valid TLS configuration.
pub(super) fn channel(settings: &Settings) -> Result<Channel, SettingsError> {
    Ok(endpoint(settings)?.connect_lazy())
}

fn endpoint(settings: &Settings) -> Result<Endpoint, SettingsError> {
    let plain = Endpoint::from(settings.endpoint.clone())
        .connect_timeout(settings.timeout)
        .tcp_keepalive(Some(KEEP_ALIVE))
        .user_agent(concat!("undercurrent/", env!("CARGO_PKG_VERSION")));
    let configured = match plain {
        Ok(plain) if settings.endpoint.scheme_str() == Some("https") => tls::configure(plain, settings),
        plain => plain.map_err(|error| crate::causes::chain(&error)),
    };
    configured.map_err(|problem| SettingsError::Tls {
        endpoint: settings.endpoint.to_string(),
        problem,
        cure: if settings.authority.is_none() {
            tls::CURE
        } else {
            "check that the files of OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY are PEM"
        },
    })
}
