//! The keys of the configuration file. Their doc comments become the descriptions of the JSON schema and
//! docs/configuration.md.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    options::{
        AbsolutePath, Hooks, Internal, Interval, Level, ListenAddress, LocalAddress, MemoryLimit, Outputs, Packets,
        Separation, Span, Workloads,
    },
    signals::Settings as Signals,
    sysfs,
};

/// The largest accepted file, in bytes. A full configuration has a few kilobytes.
pub const SIZE_LIMIT: u64 = 1 << 20;

/// Every key is optional. Flags take precedence over environment variables, and these over the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Undercurrent configuration")]
pub struct File {
    /// Time between two snapshots, 100ms to 1day. The default is 10s, or 1s if the table is the only output.
    /// `--interval` and `OTEL_METRIC_EXPORT_INTERVAL` (milliseconds) take precedence.
    #[schemars(with = "Interval")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Outputs of the measurements: `table` (live, on the terminal), `json` (OTLP/JSON lines on standard output),
    /// `json=FILE`, or `otlp` (to a collector). The default is `otlp` if an endpoint is configured, no output if `listen.address` is, otherwise
    /// `table`.
    /// `--output` takes precedence.
    #[schemars(with = "Outputs", extend("examples" = [["otlp"]]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Outputs>,
    /// Delivery to an OpenTelemetry collector. The `OTEL_EXPORTER_OTLP_*` environment variables take precedence for
    /// each key.
    pub otlp: Otlp,
    /// The OpenTelemetry resource of this node.
    pub resource: Resource,
    /// The local endpoint for health checks.
    pub health: Health,
    /// The pages for readers: `/` for a browser, `/metrics` for Prometheus, and `/v1/snapshot`, the newest snapshot in OTLP/JSON.
    pub listen: Listen,
    /// The amount of detail: `normal`, or `detailed`, which adds layers, stages of the way out, and the exact time and the waits of
    /// softirqs, at [about twice the cost](overhead.md). The keys of the signals take precedence. `--level` takes precedence over this
    /// key.
    pub level: Level,
    /// The amount of detail of the sidecar's own telemetry. `basic` exports a loss from its first event on, the current state of each hook, and
    /// the total memory of the kernel maps. The first event of a loss is no growth in a query by reason, but it is one of
    /// `undercurrent.lost.events`, the total. `detailed` exports every possible loss and state from the start on, and each map.
    pub internal: Internal,
    /// Upper limit of the memory of kernel maps. The sidecar refuses to start if the enabled signals need more.
    pub memory_limit: MemoryLimit,
    /// Attachment of eBPF programs to the kernel.
    pub hooks: Hooks,
    /// The folder where sysfs is mounted, for power meters and the topology of CPUs. In a container it is the host's `/sys` in
    /// most cases. `--sysfs-root` takes precedence.
    pub sysfs_root: SysfsRoot,
    /// Separation of the sidecar's processes.
    pub separation: Separation,
    /// Attribution of measurements to workloads.
    pub workloads: Workloads,
    /// The settings that all packet signals share.
    pub packets: Packets,
    /// The settings of each signal. `undercurrent signals` prints the metrics of each.
    pub signals: Signals,
}

/// The folder where sysfs is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SysfsRoot(pub AbsolutePath);

impl Default for SysfsRoot {
    fn default() -> Self {
        Self(AbsolutePath::of_constant(sysfs::ROOT))
    }
}

/// Delivery to an OpenTelemetry collector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// The protocol: `grpc`, `http/protobuf` or `http/json`. The default is `grpc`.
    #[schemars(with = "Protocol")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// The collector's address. The default is `http://localhost:4317` for gRPC and `http://localhost:4318` for HTTP. The scheme
    /// `https` enables TLS. For HTTP, the path of the signal is appended: `/v1/metrics`, `/v1/traces` or `/v1/logs`. `unix:///PATH`
    /// is the socket of a collector on this node.
    #[schemars(with = "String", extend("examples" = ["http://127.0.0.1:4317"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Headers of every request, for example an access token.
    pub headers: Headers,
    /// Compression of requests: `gzip`, `zstd` or `none`. The default is no compression.
    #[schemars(with = "Compression")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// Timeout of a request. The default is 10s.
    #[schemars(with = "Span")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Delivery of the sidecar's own logs, beside standard error. `OTEL_LOGS_EXPORTER` takes precedence.
    pub logs: bool,
}

impl Default for Otlp {
    fn default() -> Self {
        Self {
            protocol: None,
            endpoint: None,
            headers: Headers::default(),
            compression: None,
            timeout: None,
            logs: true,
        }
    }
}

/// The protocol of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// Protobuf over gRPC.
    #[serde(rename = "grpc")]
    Grpc,
    /// Protobuf over HTTP.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
    /// JSON over HTTP.
    #[serde(rename = "http/json")]
    HttpJson,
}

/// Header names with their values. Debug output hides the values.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Headers(pub BTreeMap<String, String>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|name| (name, "..."))).finish()
    }
}

/// The compression of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
    /// No compression.
    None,
}

/// The local endpoint for health checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// The address of the endpoint: `127.0.0.1:PORT`, `[::1]:PORT` or `unix:///PATH`. `/healthz` answers 200 while snapshots are taken in
    /// time, `/readyz` if also the last delivery of each output succeeded; otherwise 503 with the reason. No endpoint by default.
    #[schemars(with = "LocalAddress", extend("examples" = ["127.0.0.1:13134"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<LocalAddress>,
}

/// The pages for readers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Listen {
    /// The address and the port of the pages. The names of all workloads are on them, for every user of this host. An address that other hosts
    /// can reach requires `token_file`. No pages by default. `--listen` takes precedence.
    #[schemars(with = "ListenAddress", extend("examples" = ["127.0.0.1:9464"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<ListenAddress>,
    /// The file with the token that readers send (`Authorization: Bearer TOKEN`), at least 16 characters. The sidecar reads it at its start.
    /// Without a file, every program on this host can read the pages.
    #[schemars(with = "AbsolutePath", extend("examples" = ["/etc/undercurrent/token"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<AbsolutePath>,
}

/// The OpenTelemetry resource of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resource {
    /// Resource attributes, for example `deployment.environment.name: production`. `OTEL_RESOURCE_ATTRIBUTES` takes
    /// precedence for each key.
    pub attributes: BTreeMap<String, String>,
}
