//! OTLP.

mod delivery;
mod destination;
mod endpoint;
mod error;
mod failure;
mod grpc;
mod headers;
mod kind;
mod own;
mod settings;
#[cfg(test)]
mod tests;
mod tls;
mod transport;

pub use error::{EndpointError, SettingsError};
pub use own::{OwnLayer, OwnTelemetry, RunningTelemetry};
pub use settings::{
    CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY, COMPRESSION, Compression, Configured, ENDPOINT, ENDPOINT_KEY,
    FileSettings, HEADERS, INSECURE, Items, Names, PROTOCOL, Settings, TIMEOUT, endpoint_is_set,
};
pub use tls::{ClientIdentity, Pem};

use prost::bytes::Bytes;

use self::{
    delivery::Delivery,
    failure::{FailureKind, Refusal},
    grpc::{Connector, Grpc},
    kind::{Metrics, Spans},
    transport::Transport as _,
};
use super::{Bus, Output, Statistics, Topics};

/// A trial of an endpoint with an empty request.
pub struct Trial(Grpc);

impl Trial {
    /// Prepares a connection for a trial. Requires a tokio runtime.
    ///
    /// # Errors
    /// If the certificates and keys are no valid TLS configuration.
    pub fn new(items: Items, settings: Settings) -> Result<Self, SettingsError> {
        let connector = Connector::new(&settings)?;
        let channel = connector.channel();
        Ok(Self(Grpc::new(items, settings, connector, channel)))
    }

    /// Sends an empty request.
    ///
    /// # Errors
    /// The problem and its remedy, if the endpoint accepts no requests of this kind.
    pub async fn run(mut self) -> Result<(), String> {
        // A message without fields has no bytes.
        match self.0.send(Bytes::new()).await {
            // A collector may refuse an empty request as invalid, but then it accepts others.
            Err(failure) if failure.kind != FailureKind::Refused(Refusal::Content) => {
                Err(self.0.destination().explain(&failure))
            }
            _ => Ok(()),
        }
    }
}

/// Opens the output for metrics, and for spans if they are exported, and subscribes it to the bus. The first delivery connects; if the endpoint is unreachable, the output logs, counts and
/// retries. Requires a tokio runtime.
///
/// # Errors
/// If the certificates and keys are no valid TLS configuration.
pub fn open(bus: &Bus, metrics: Settings, spans: Option<Settings>) -> Result<Output, SettingsError> {
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
        let client = Grpc::new(Items::Spans, spans, connector, channel);
        Ok(Delivery::<Spans, _>::new(client, statistics.clone()))
    });
    let traces = traces.transpose()?;
    let client = Grpc::new(Items::Metrics, metrics, connector, channel);
    let metrics = Delivery::<Metrics, _>::new(client, statistics.clone());
    let metrics = metrics.run(bus.subscribe(Topics::SNAPSHOTS, &statistics));
    let traces = traces.map(|traces| traces.run(bus.subscribe(Topics::SPANS, &statistics)));
    Ok(Output::in_task(statistics, async {
        let spans = async {
            if let Some(traces) = traces {
                traces.await;
            }
        };
        tokio::join!(metrics, spans);
    }))
}
