//! OTLP.

mod access;
mod client;
mod delivery;
mod destination;
mod dialer;
mod endpoint;
mod error;
mod failure;
mod grpc;
mod headers;
mod http;
mod kind;
mod own;
mod protocol;
mod settings;
mod socket;
#[cfg(test)]
mod tests;
mod tls;
mod transport;
mod trial;

pub use crate::form::{Form, Histograms, Temporality};
pub use access::{Access, Opening};
pub use endpoint::without_query;
pub use error::{EndpointError, SettingsError};
pub use own::{OwnLayer, OwnTelemetry, RunningTelemetry};
pub use protocol::Protocol;
pub use settings::{
    CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY, COMPRESSION, Compression, Configured, ENDPOINT, ENDPOINT_KEY,
    FileSettings, HEADERS, HISTOGRAMS, INSECURE, Items, Names, PROTOCOL, Settings, TEMPORALITY, TIMEOUT,
    endpoint_is_set,
};
pub use tls::{ClientIdentity, Pem};
pub use trial::Trial;

use self::{
    client::Connection,
    delivery::Delivery,
    kind::{Metrics, Spans},
};
use super::{Bus, Output, Statistics, Topics, acknowledged::CollectorState};

/// Opens the output for metrics, and for spans if they are exported, and subscribes it to the bus. The first delivery connects; if the endpoint is unreachable, the output logs, counts and
/// retries. Requires a tokio runtime.
///
/// # Errors
/// If the certificates and keys are no valid TLS configuration.
pub fn open(bus: &Bus, metrics: Settings, spans: Option<Settings>) -> Result<Output, SettingsError> {
    let statistics = Statistics::new("otlp");
    let connection = Connection::new(&metrics)?;
    statistics.exporters(|exporters| exporters.metrics = metrics.protocol.exporters().metrics);
    let traces = spans.map(|spans| {
        statistics.exporters(|exporters| exporters.spans = spans.protocol.exporters().spans);
        let shared = spans.connects_like(&metrics).then(|| connection.clone());
        let connection = shared.map_or_else(|| Connection::new(&spans), Ok)?;
        Ok(Delivery::new(Spans, connection.client(Items::Spans, spans), statistics.clone()))
    });
    let traces = traces.transpose()?;
    let kind = Metrics(CollectorState::new(metrics.form));
    let client = connection.client(Items::Metrics, metrics);
    let metrics = Delivery::new(kind, client, statistics.clone());
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
