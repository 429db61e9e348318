//! Calls to a collector by gRPC.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::{
    logs::v1::{ExportLogsServiceRequest, logs_service_client::LogsServiceClient},
    metrics::v1::{ExportMetricsServiceRequest, metrics_service_client::MetricsServiceClient},
    trace::v1::{ExportTraceServiceRequest, trace_service_client::TraceServiceClient},
};
use tonic::{Request, Response, Status, codec::CompressionEncoding, transport::Channel};

use super::{Compression, Items, Settings, connection::Connector, failure::Failure};

/// Consecutive calls without an answer in time before the next call uses a new connection. A load balancer can keep a
/// connection alive after it lost the collector behind it.
const TIMEOUTS: u32 = 2;

/// A client for metrics, for spans or for logs.
pub(super) struct Client {
    items: Items,
    settings: Settings,
    connector: Connector,
    channel: Channel,
    /// Consecutive calls without an answer in time.
    timeouts: u32,
}

/// The reply to an accepted request.
#[derive(Debug)]
pub(super) struct Reply {
    /// The number of rejected items.
    pub(super) rejected: u64,
    /// The collector's message: the reason of a rejection, or a warning.
    pub(super) message: String,
}

impl Reply {
    fn new(rejected: i64, message: String) -> Self {
        Self { rejected: u64::try_from(rejected).unwrap_or(0), message }
    }
}

/// Configures the compression of a generated client.
macro_rules! compressed {
    ($client:expr, $settings:expr) => {{
        let client = $client.accept_compressed(CompressionEncoding::Gzip);
        match $settings.compression {
            Compression::Gzip => client.send_compressed(CompressionEncoding::Gzip),
            Compression::None => client,
        }
    }};
}

impl Client {
    /// Creates a client on a channel of the connector.
    pub(super) fn new(items: Items, settings: Settings, connector: Connector, channel: Channel) -> Self {
        Self { items, settings, connector, channel, timeouts: 0 }
    }

    /// Returns the endpoint.
    pub(super) fn endpoint(&self) -> String {
        self.settings.endpoint.to_string()
    }

    /// Sends metrics once.
    pub(super) async fn metrics(&mut self, message: ExportMetricsServiceRequest) -> Result<Reply, Failure> {
        let mut client = compressed!(MetricsServiceClient::new(self.channel.clone()), self.settings);
        let partial = self.call(client.export(self.request(message))).await?.partial_success.unwrap_or_default();
        Ok(Reply::new(partial.rejected_data_points, partial.error_message))
    }

    /// Sends spans once.
    pub(super) async fn spans(&mut self, message: ExportTraceServiceRequest) -> Result<Reply, Failure> {
        let mut client = compressed!(TraceServiceClient::new(self.channel.clone()), self.settings);
        let partial = self.call(client.export(self.request(message))).await?.partial_success.unwrap_or_default();
        Ok(Reply::new(partial.rejected_spans, partial.error_message))
    }

    /// Sends log records once.
    async fn logs(&mut self, message: ExportLogsServiceRequest) -> Result<(), Failure> {
        let mut client = compressed!(LogsServiceClient::new(self.channel.clone()), self.settings);
        self.call(client.export(self.request(message))).await.map(drop)
    }

    /// Sends an empty request. A collector may refuse it as invalid, but then it accepts others.
    pub(super) async fn try_endpoint(mut self) -> Result<(), Failure> {
        let answer = match self.items {
            Items::Metrics => self.metrics(ExportMetricsServiceRequest::default()).await.map(drop),
            Items::Spans => self.spans(ExportTraceServiceRequest::default()).await.map(drop),
            Items::Logs => self.logs(ExportLogsServiceRequest::default()).await,
        };
        answer.or_else(|failure| if failure.is_about_content() { Ok(()) } else { Err(failure) })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.settings.headers.clone();
        request.set_timeout(self.settings.timeout);
        request
    }

    /// Waits for the answer of a call. The channel's own timeout excludes connecting.
    async fn call<T>(&mut self, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Failure> {
        let timeout = self.settings.timeout;
        let answer = tokio::time::timeout(timeout, call).await.unwrap_or_else(|_| Err(unanswered(timeout)));
        let failure = match answer {
            Ok(answer) => {
                self.timeouts = 0;
                return Ok(answer.into_inner());
            }
            Err(status) => Failure::new(&status, self.items, &self.settings),
        };
        self.timeouts = if failure.is_timeout() { self.timeouts + 1 } else { 0 };
        if self.timeouts == TIMEOUTS {
            tracing::debug!(endpoint = self.endpoint(), "connecting again after {TIMEOUTS} calls without an answer");
            self.channel = self.connector.channel();
            self.timeouts = 0;
        }
        Err(failure)
    }
}

fn unanswered(timeout: Duration) -> Status {
    Status::deadline_exceeded(format!("no answer within {} ms", timeout.as_millis()))
}
