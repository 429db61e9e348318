//! OTLP over gRPC.

mod connection;
mod delivery;
mod endpoint;
mod error;
mod failure;
mod headers;
mod settings;
#[cfg(test)]
mod tests;
#[cfg_attr(not(feature = "tls"), path = "without_tls.rs")]
mod tls;
mod traces;

pub use error::{EndpointError, SettingsError};
pub use settings::{
    CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY, COMPRESSION, ClientIdentity, Compression, ENDPOINT, HEADERS, INSECURE,
    PROTOCOL, Pem, Settings, TIMEOUT, endpoint_is_set, environment,
};

use super::{Output, Statistics};

/// Opens the output. The first delivery connects; if the endpoint is unreachable, the output logs, counts and
/// retries. Requires a tokio runtime.
///
/// # Errors
/// If the certificates and keys are no valid TLS configuration.
pub fn open(settings: Settings) -> Result<Output, SettingsError> {
    let statistics = Statistics::new("otlp");
    let channel = connection::channel(&settings)?;
    let traces = traces::TraceDelivery::new(&settings, channel.clone(), statistics.clone());
    let metrics = delivery::Delivery::new(settings, channel, statistics.clone());
    Ok(Output::in_task(statistics, |snapshots, spans| async {
        tokio::join!(metrics.run(snapshots), traces.run(spans));
    }))
}
