//! A Jaeger on loopback, and its query API.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use xtask_common::machine;

use super::JAEGER;
use crate::{
    ports::{free_address, retry},
    server::{READY, Server, folder},
};

/// The configuration.
const CONFIGURATION: &str = "otel-config/jaeger.yaml";
/// Timeout of a query.
const ANSWER: Duration = Duration::from_secs(10);

/// A Jaeger with an empty store in memory. It ends on drop.
pub struct Jaeger {
    _server: Server,
    otlp: SocketAddr,
    query: SocketAddr,
}

/// A trace of the query API.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// The id in hexadecimal.
    #[serde(rename = "traceID")]
    pub id: String,
    /// The spans in any order.
    pub spans: Vec<Span>,
    /// The processes by id.
    pub processes: BTreeMap<String, Process>,
}

/// A span of the query API.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    /// The id in hexadecimal.
    #[serde(rename = "spanID")]
    pub id: String,
    /// The name.
    pub operation_name: String,
    /// The parents and links.
    pub references: Vec<Reference>,
    /// Microseconds since the Unix epoch.
    pub start_time: u64,
    /// Microseconds.
    pub duration: u64,
    /// The attributes.
    pub tags: Vec<Tag>,
    /// The id of the process.
    #[serde(rename = "processID")]
    pub process: String,
}

/// A reference to another span.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    /// `CHILD_OF` or `FOLLOWS_FROM`.
    pub ref_type: String,
    /// The id in hexadecimal.
    #[serde(rename = "spanID")]
    pub span: String,
}

/// An attribute.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Tag {
    /// The key.
    pub key: String,
    /// The value.
    pub value: serde_json::Value,
}

/// A resource.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// `service.name`.
    pub service_name: String,
}

impl Span {
    /// Returns the id of the parent.
    pub fn parent(&self) -> Option<&str> {
        self.references
            .iter()
            .find(|reference| reference.ref_type == "CHILD_OF")
            .map(|reference| reference.span.as_str())
    }

    /// Returns an attribute of the type string.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.tags.iter().find(|tag| tag.key == key)?.value.as_str()
    }

    /// Returns the end in microseconds since the Unix epoch.
    pub const fn end(&self) -> u64 {
        self.start_time + self.duration
    }
}

/// The body of a response.
#[derive(Deserialize)]
struct Response {
    data: Option<Vec<Trace>>,
}

impl Jaeger {
    /// Starts Jaeger with otel-config/jaeger.yaml on free ports, and waits until it is ready.
    pub fn start() -> anyhow::Result<Self> {
        retry(Self::launch)
    }

    fn launch() -> anyhow::Result<Self> {
        let (otlp, query) = (free_address()?, free_address()?);
        let addresses = [
            ("receivers.otlp.protocols.http.endpoint", otlp),
            ("receivers.otlp.protocols.grpc.endpoint", free_address()?),
            ("extensions.jaeger_query.http.endpoint", query),
            ("extensions.jaeger_query.grpc.endpoint", free_address()?),
            ("extensions.healthcheckv2.http.endpoint", free_address()?),
        ];
        let server = Server::start(
            JAEGER.title,
            &JAEGER.path()?,
            folder()?,
            |command| {
                command.arg("--config").arg(machine::workspace().join(CONFIGURATION));
                // Jaeger serves its own metrics on a port of the host by default.
                command.arg("--set=service.telemetry.metrics.level=none");
                command.args(addresses.map(|(key, address)| format!("--set={key}={address}")))
            },
            |log| log.contains(READY),
        )?;
        Ok(Self { _server: server, otlp, query })
    }

    /// Returns the URL of the OTLP receiver, without the signal's path.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.otlp)
    }

    /// Returns the traces that contain spans of a service of at least this duration.
    pub fn traces(&self, service: &str, shortest: Duration) -> anyhow::Result<Vec<Trace>> {
        let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(ANSWER)).build().into();
        let call = agent.get(query(self.query, service, shortest)).call();
        parse(&call.context("Jaeger does not answer")?.body_mut().read_to_string()?)
    }
}

/// Returns the URL of the traces that contain spans of a service of at least this duration.
fn query(jaeger: SocketAddr, service: &str, shortest: Duration) -> String {
    let duration = shortest.as_micros();
    format!("http://{jaeger}/api/traces?service={service}&minDuration={duration}us&limit=1000&lookback=1h")
}

/// Parses the answer to a [`query`].
pub fn parse(text: &str) -> anyhow::Result<Vec<Trace>> {
    let response: Response = serde_json::from_str(text).with_context(|| format!("the response {text}"))?;
    Ok(response.data.unwrap_or_default())
}
