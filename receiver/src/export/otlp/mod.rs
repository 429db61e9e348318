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
    Items, PROTOCOL, Pem, Settings, TIMEOUT, endpoint_is_set,
};

use super::{Output, Statistics};

/// Opens the output for metrics, and for spans if they are exported. The first delivery connects; if the endpoint is unreachable, the output logs, counts and
/// retries. Requires a tokio runtime.
///
/// # Errors
/// If the certificates and keys are no valid TLS configuration.
pub fn open(metrics: Settings, spans: Option<Settings>) -> Result<Output, SettingsError> {
    let statistics = Statistics::new("otlp");
    let channel = connection::channel(&metrics)?;
    let traces = spans.map(|spans| {
        let own = !spans.connects_like(&metrics);
        let channel = if own { connection::channel(&spans)? } else { channel.clone() };
        Ok(traces::TraceDelivery::new(spans, channel, statistics.clone()))
    });
    let traces = traces.transpose()?;
    let metrics = delivery::Delivery::new(metrics, channel, statistics.clone());
    Ok(Output::in_task(statistics, |snapshots, inbox| async {
        let spans = async {
            if let Some(traces) = traces {
                traces.run(inbox).await;
            }
        };
        tokio::join!(metrics.run(snapshots), spans);
    }))
}
