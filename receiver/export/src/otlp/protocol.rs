//! The protocols of OTLP.

use crate::{encoding::Encoding, telemetry::Exporters};

/// A protocol of OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Protobuf over gRPC.
    #[default]
    Grpc,
    /// Protobuf over HTTP/1.1.
    HttpProtobuf,
    /// JSON over HTTP/1.1.
    HttpJson,
}

impl Protocol {
    const ALL: [Self; 3] = [Self::Grpc, Self::HttpProtobuf, Self::HttpJson];

    /// Returns the value of `OTEL_EXPORTER_OTLP_PROTOCOL`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::HttpProtobuf => "http/protobuf",
            Self::HttpJson => "http/json",
        }
    }

    /// Returns the protocol with this value of `OTEL_EXPORTER_OTLP_PROTOCOL`.
    pub(super) fn from_value(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.as_str() == value)
    }

    /// Returns true for the protocols over HTTP/1.1.
    pub(super) const fn is_http(self) -> bool {
        matches!(self, Self::HttpProtobuf | Self::HttpJson)
    }

    /// Returns the name of the protocol in messages.
    pub(super) const fn name(self) -> &'static str {
        if self.is_http() { "OTLP/HTTP" } else { "OTLP/gRPC" }
    }

    /// Returns the usual port.
    pub(super) const fn port(self) -> u16 {
        if self.is_http() { 4318 } else { 4317 }
    }

    /// Returns the protocol that a server on a wrong port may expect.
    pub(super) const fn other(self) -> Self {
        if self.is_http() { Self::Grpc } else { Self::HttpProtobuf }
    }

    /// Returns the encoding of requests.
    pub(super) const fn encoding(self) -> Encoding {
        match self {
            Self::Grpc | Self::HttpProtobuf => Encoding::Protobuf,
            Self::HttpJson => Encoding::Json,
        }
    }

    /// Returns the exporters of the protocol.
    pub(super) const fn exporters(self) -> Exporters {
        match self {
            Self::Grpc => Exporters::OTLP_GRPC,
            Self::HttpProtobuf => Exporters::OTLP_HTTP,
            Self::HttpJson => Exporters::OTLP_HTTP_JSON,
        }
    }
}
