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
mod replacement;
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
pub use own::{LogCollector, OwnLayer, OwnTelemetry, RunningTelemetry};
pub use protocol::Protocol;
pub use settings::{
    CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY, COMPRESSION, Compression, Configured, ENDPOINT, ENDPOINT_KEY,
    FileSettings, HEADERS, HISTOGRAMS, INSECURE, Items, Names, PROTOCOL, Settings, TEMPORALITY, TIMEOUT,
    endpoint_is_set,
};
pub use tls::{ClientIdentity, Pem};
pub use trial::Trial;

use tokio::runtime::Handle;

use self::{
    client::{Client, Connection},
    delivery::Delivery,
    kind::{Metrics, Spans},
    replacement::Replacement,
};
use super::{Bus, Output, Statistics, Topics, acknowledged::CollectorState};

/// The collectors of an open output.
pub struct Collectors {
    metrics: Replacement<Client>,
    /// `None` if no spans are exported.
    spans: Option<Replacement<Client>>,
    statistics: Statistics,
    /// The runtime of the output, which runs the connections.
    runtime: Handle,
}

impl Collectors {
    /// Replaces the collectors. The next request goes to the new one, and a request that waits for another attempt is sent at once. Counts
    /// continue, and so does the acknowledged state of metrics with delta temporality. `spans` are without effect if the output
    /// exports none.
    ///
    /// # Errors
    /// If the certificates and keys are no valid TLS configuration. The present collectors then stay.
    pub fn replace(&self, metrics: Settings, spans: Option<Settings>) -> Result<(), SettingsError> {
        let _entered = self.runtime.enter();
        let clients = Clients::new(metrics, spans, &self.statistics)?;
        self.metrics.set(clients.metrics);
        self.spans.iter().zip(clients.spans).for_each(|(replacement, spans)| replacement.set(spans));
        Ok(())
    }
}

/// The clients of an output.
struct Clients {
    metrics: Client,
    spans: Option<Client>,
}

impl Clients {
    /// Creates the clients, with one connection if both have one destination.
    fn new(metrics: Settings, spans: Option<Settings>, statistics: &Statistics) -> Result<Self, SettingsError> {
        let connection = Connection::new(&metrics)?;
        let exporters = metrics.protocol.exporters();
        let spans = spans.map(|spans| {
            let exporters = spans.protocol.exporters();
            let shared = spans.connects_like(&metrics).then(|| connection.clone());
            let connection = shared.map_or_else(|| Connection::new(&spans), Ok)?;
            statistics.exporters(|all| all.spans = exporters.spans);
            Ok(connection.client(Items::Spans, spans))
        });
        let spans = spans.transpose()?;
        statistics.exporters(|all| all.metrics = exporters.metrics);
        Ok(Self { metrics: connection.client(Items::Metrics, metrics), spans })
    }
}

/// Opens the output for metrics, and for spans if they are exported, and subscribes it to the bus. The first delivery connects; if the
/// endpoint is unreachable, the output logs, counts and retries. Returns the handle of its collectors. Requires a tokio runtime.
///
/// # Errors
/// If the certificates and keys are no valid TLS configuration.
pub fn open(bus: &Bus, metrics: Settings, spans: Option<Settings>) -> Result<(Output, Collectors), SettingsError> {
    let statistics = Statistics::new("otlp");
    let kind = Metrics(CollectorState::new(metrics.form));
    let clients = Clients::new(metrics, spans, &statistics)?;
    let metrics = Delivery::new(kind, clients.metrics, statistics.clone());
    let spans = clients.spans.map(|client| Delivery::new(Spans, client, statistics.clone()));
    let collectors = Collectors {
        metrics: metrics.replacement(),
        spans: spans.as_ref().map(Delivery::replacement),
        statistics: statistics.clone(),
        runtime: Handle::current(),
    };
    let metrics = metrics.run(bus.subscribe(Topics::SNAPSHOTS, &statistics));
    let spans = spans.map(|spans| spans.run(bus.subscribe(Topics::SPANS, &statistics)));
    let output = Output::in_task(statistics, async {
        let spans = async {
            if let Some(spans) = spans {
                spans.await;
            }
        };
        tokio::join!(metrics, spans);
    });
    Ok((output, collectors))
}
