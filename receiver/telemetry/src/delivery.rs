//! Delivery statistics of an output.

use std::collections::BTreeMap;

use super::{ExponentialHistogram, UnixNanos};

/// The reason of a failure: a gRPC status code in lower snake case, a status of HTTP, a system error, or `rejected`. `None` for success.
pub type ErrorType = Option<&'static str>;

/// The exporters of an output: the values of `otel.component.type`. Outputs other than OTLP have one exporter, with their name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exporters {
    /// The exporter of metrics.
    pub metrics: &'static str,
    /// The exporter of spans.
    pub spans: &'static str,
    /// The exporter of the sidecar's own logs.
    pub logs: &'static str,
}

impl Exporters {
    /// The exporters of OTLP over gRPC.
    pub const OTLP_GRPC: Self =
        Self { metrics: "otlp_grpc_metric_exporter", spans: "otlp_grpc_span_exporter", logs: "otlp_grpc_log_exporter" };
    /// The exporters of OTLP over HTTP with protobuf.
    pub const OTLP_HTTP: Self =
        Self { metrics: "otlp_http_metric_exporter", spans: "otlp_http_span_exporter", logs: "otlp_http_log_exporter" };
    /// The exporters of OTLP over HTTP with JSON.
    pub const OTLP_HTTP_JSON: Self = Self {
        metrics: "otlp_http_json_metric_exporter",
        spans: "otlp_http_json_span_exporter",
        logs: "otlp_http_json_log_exporter",
    };

    /// The exporter of snapshots that readers fetch.
    pub const LISTEN: &str = "listen";

    /// Returns the exporter of an output other than OTLP.
    #[must_use]
    pub const fn of_output(name: &'static str) -> Self {
        Self { metrics: name, spans: name, logs: name }
    }
}

/// The delivery statistics of one output since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delivery {
    /// The exporters of the output.
    pub exporters: Exporters,
    /// Points with a finished export, by outcome. Points of a snapshot that is retried are not finished.
    pub points: BTreeMap<ErrorType, u64>,
    /// Spans with a finished export, by outcome.
    pub spans: BTreeMap<ErrorType, u64>,
    /// Records of the sidecar's own log with a finished export, by outcome.
    pub logs: BTreeMap<ErrorType, u64>,
    /// Spans dropped because the output was too slow.
    pub dropped_spans: u64,
    /// Durations of finished exports, by outcome. An export is one snapshot with all attempts and the waits between
    /// them.
    pub exports: BTreeMap<ErrorType, ExponentialHistogram>,
    /// The outcome of the last finished export of a snapshot; `None` before the first one.
    pub last: Option<ErrorType>,
    /// Snapshots dropped at the end of the process, or because a newer snapshot replaced them.
    pub dropped_snapshots: u64,
    /// Time of the newest settled snapshot, which was delivered or finally rejected. Replaced snapshots and snapshots
    /// that will be retried are not settled.
    pub settled: Option<UnixNanos>,
}

impl Delivery {
    /// Returns the number of points with an outcome.
    #[must_use]
    pub fn points(&self, outcome: ErrorType) -> u64 {
        self.points.get(&outcome).copied().unwrap_or(0)
    }

    /// Returns the number of snapshots with an outcome.
    #[must_use]
    pub fn snapshots(&self, outcome: ErrorType) -> u64 {
        self.exports.get(&outcome).map_or(0, ExponentialHistogram::count)
    }
}
