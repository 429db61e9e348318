//! The keys of the configuration file. Doc comments here are what the JSON schema and docs/configuration.md say.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    options::{Hooks, Interval, MemoryLimit, Outputs, Packets, Span, Workloads},
    signals::Settings as Signals,
};

/// Every key is optional. Flags win over environment variables, and these over the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Undercurrent configuration")]
pub struct File {
    /// Time from one snapshot to the next, 100ms to 1day. Without it 10s, or 1s where the table is the only output.
    /// `--interval` and `OTEL_METRIC_EXPORT_INTERVAL` (milliseconds) win.
    #[schemars(with = "Interval")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Where measurements go: `table` (live, on the terminal), `json` (OTLP/JSON lines on standard output), `json=FILE`,
    /// `otlp` (to a collector). Without it `otlp` where an endpoint is configured, else `table`. `--output` wins.
    #[schemars(with = "Outputs", extend("examples" = [["otlp"]]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Outputs>,
    /// Delivery to an OpenTelemetry collector. The `OTEL_EXPORTER_OTLP_*` environment variables win, key by key.
    pub otlp: Otlp,
    /// What is said of this node.
    pub resource: Resource,
    /// Upper limit of the memory that kernel maps may take. The sidecar refuses to start when the signals need more.
    pub memory_limit: MemoryLimit,
    /// How the kernel is listened to.
    pub hooks: Hooks,
    /// Whose a measurement is.
    pub workloads: Workloads,
    /// The settings that all signals of packets share.
    pub packets: Packets,
    /// The settings of each signal. `undercurrent signals` prints the metrics of each.
    pub signals: Signals,
}

/// Delivery to an OpenTelemetry collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// The collector's address for OTLP over gRPC, such as `http://127.0.0.1:4317`; `https` for TLS.
    #[schemars(with = "String", extend("examples" = ["http://127.0.0.1:4317"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Headers sent with every request, such as an access token.
    pub headers: Headers,
    /// How requests are compressed. Without it not at all.
    #[schemars(with = "Compression")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// How long a request may take. Without it 10s.
    #[schemars(with = "Span")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// Header names with their values, which are kept out of logs.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Headers(pub BTreeMap<String, String>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|name| (name, "..."))).finish()
    }
}

/// How requests are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// gzip.
    Gzip,
    /// Not at all.
    None,
}

/// What is said of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resource {
    /// Resource attributes, such as `deployment.environment.name: production`. `OTEL_RESOURCE_ATTRIBUTES` wins, key by key.
    pub attributes: BTreeMap<String, String>,
}
