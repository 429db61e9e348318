//! OTLP over gRPC.

mod client;
mod connection;
mod delivery;
mod endpoint;
mod error;
mod failure;
mod headers;
mod kind;
mod own;
mod settings;
#[cfg(test)]
mod tests;
#[cfg_attr(not(feature = "tls"), path = "without_tls.rs")]
mod tls;

pub use error::{EndpointError, SettingsError};
pub use own::{OwnLayer, OwnTelemetry, RunningTelemetry};
pub use settings::{
    CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY, COMPRESSION, ClientIdentity, Compression, Configured, ENDPOINT,
    ENDPOINT_KEY, FileSettings, HEADERS, INSECURE, Items, Names, PROTOCOL, Pem, Settings, TIMEOUT, endpoint_is_set,
};

use self::{
    client::Client,
    connection::Connector,
    delivery::Delivery,
    kind::{Metrics, Spans},
};
use super::{Output, Statistics};

/// A trial of an endpoint with an empty request.
pub struct Trial(Client);

impl Trial {
    /// Prepares a connection for a trial. Requires a tokio runtime.
    ///
    /// # Errors
    /// If the certificates and keys are no valid TLS configuration.
    pub fn new(items: Items, settings: Settings) -> Result<Self, SettingsError> {
        let connector = Connector::new(&settings)?;
        let channel = connector.channel();
        Ok(Self(Client::new(items, settings, connector, channel)))
    }

    /// Sends an empty request.
    ///
    /// # Errors
    /// The problem and its remedy, if the endpoint accepts no requests of this kind.
    pub async fn run(self) -> Result<(), String> {
        self.0.try_endpoint().await.map_err(|failure| failure.explained())
    }
}

/// Opens the output for metrics, and for spans if they are exported. The first delivery connects; if the endpoint is unreachable, the output logs, counts and
/// retries. Requires a tokio runtime.
///
/// # Errors
/// If the certificates and keys are no valid TLS configuration.
pub fn open(metrics: Settings, spans: Option<Settings>) -> Result<Output, SettingsError> {
    let statistics = Statistics::new("otlp");
    let connector = Connector::new(&metrics)?;
    let channel = connector.channel();
    let traces = spans.map(|spans| {
        let (connector, channel) = if spans.connects_like(&metrics) {
            (connector.clone(), channel.clone())
        } else {
            let own = Connector::new(&spans)?;
            let channel = own.channel();
            (own, channel)
        };
        let client = Client::new(Items::Spans, spans, connector, channel);
        Ok(Delivery::<Spans>::new(client, statistics.clone()))
    });
    let traces = traces.transpose()?;
    let client = Client::new(Items::Metrics, metrics, connector, channel);
    let metrics = Delivery::<Metrics>::new(client, statistics.clone());
    Ok(Output::in_task(statistics, |snapshots, inbox| async {
        let spans = async {
            if let Some(traces) = traces {
                traces.run(inbox).await;
            }
        };
        tokio::join!(metrics.run(snapshots), spans);
    }))
}
