//! OTLP over gRPC.

mod answer;
mod codec;
mod connection;
mod status;

use std::time::Duration;

use prost::bytes::Bytes;
use tonic::{
    Request, Status, client::Grpc as Client, codec::CompressionEncoding, codegen::http::uri::PathAndQuery,
    metadata::MetadataMap, transport::Channel,
};

use self::{answer::Answers, codec::Encoded, status::is_own_timer};
pub(super) use self::{
    connection::Connector,
    status::{failure, reason},
};
use super::{
    Compression, Items, Settings,
    destination::Destination,
    failure::{Failure, FailureKind},
    transport::{Reply, Transport},
};
use crate::encoding::Encoding;

/// Consecutive calls without an answer in time before the next call uses a new connection. A load balancer can keep a
/// connection alive after it lost the collector behind it.
const TIMEOUTS: u32 = 2;

/// A client for metrics, for spans or for logs.
pub(super) struct Grpc {
    method: &'static str,
    destination: Destination,
    settings: Settings,
    connector: Connector,
    channel: Channel,
    /// Consecutive calls without an answer in time.
    timeouts: u32,
}

impl Grpc {
    /// Creates a client on a channel of the connector.
    pub(super) fn new(items: Items, settings: Settings, connector: Connector, channel: Channel) -> Self {
        let method = match items {
            Items::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Items::Spans => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Items::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        };
        let destination = Destination::new(items, &settings);
        Self { method, destination, settings, connector, channel, timeouts: 0 }
    }

    async fn call(&self, message: Bytes) -> Result<Reply, Status> {
        let mut client = Client::new(Answers(self.channel.clone()))
            // The collector compresses a reply like its request.
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd);
        client = match self.settings.compression {
            Compression::None => client,
            Compression::Gzip => client.send_compressed(CompressionEncoding::Gzip),
            Compression::Zstd => client.send_compressed(CompressionEncoding::Zstd),
        };
        client.ready().await.map_err(Status::from_error)?;
        let mut request = Request::new(message);
        *request.metadata_mut() = MetadataMap::from_headers(self.settings.headers.clone());
        request.set_timeout(self.settings.timeout);
        let method = PathAndQuery::from_static(self.method);
        Ok(client.unary(request, method, Encoded).await?.into_inner())
    }

    /// Uses a new connection after too many calls without an answer.
    fn count_timeouts(&mut self, is_timeout: bool) {
        self.timeouts = if is_timeout { self.timeouts + 1 } else { 0 };
        if self.timeouts == TIMEOUTS {
            let endpoint = &self.destination.endpoint;
            tracing::debug!(endpoint, "connecting again after {TIMEOUTS} calls without an answer");
            self.channel = self.connector.channel();
            self.timeouts = 0;
        }
    }
}

impl Transport for Grpc {
    fn destination(&self) -> &Destination {
        &self.destination
    }

    fn encoding(&self) -> Encoding {
        Encoding::Protobuf
    }

    async fn send(&mut self, request: Bytes) -> Result<Reply, Failure> {
        let timeout = self.settings.timeout;
        // The channel's own timeout excludes connecting.
        let answer = tokio::time::timeout(timeout, self.call(request)).await;
        // The channel's timer may expire first, because both run for the same time.
        let answer = match answer {
            Ok(Err(status)) if is_own_timer(&status) => Err(unanswered(timeout)),
            Ok(answer) => answer,
            Err(_) => Err(unanswered(timeout)),
        };
        let reply = answer.map_err(|status| failure(&status));
        self.count_timeouts(reply.as_ref().is_err_and(|failure| failure.kind == FailureKind::Timeout));
        reply
    }
}

fn unanswered(timeout: Duration) -> Status {
    Status::deadline_exceeded(format!("no answer within {} ms", timeout.as_millis()))
}
