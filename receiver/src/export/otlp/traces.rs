//! Delivers spans in order, with retries.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, trace_service_client::TraceServiceClient,
};
use tokio::time::Instant;
use tonic::{Request, Status, codec::CompressionEncoding, metadata::MetadataMap, transport::Channel};

use super::{
    Compression, Items, Settings,
    delivery::{LONGEST_WAIT, REJECTED, backoff},
    failure::{Failure, Verdict, quoted, reason, verdict},
};
use crate::{
    export::{Statistics, health::Health, mailbox::Inbox, spans::request},
    telemetry::SpanBatch,
};

/// Most attempts to deliver spans. Later spans wait meanwhile.
const ATTEMPTS: usize = 5;

/// The delivery of spans to one endpoint.
pub(super) struct TraceDelivery {
    client: TraceServiceClient<Channel>,
    endpoint: String,
    assumes_tls: bool,
    headers: MetadataMap,
    timeout: std::time::Duration,
    statistics: Statistics,
    health: Health,
}

impl TraceDelivery {
    pub(super) fn new(settings: Settings, channel: Channel, statistics: Statistics) -> Self {
        let client = TraceServiceClient::new(channel).accept_compressed(CompressionEncoding::Gzip);
        Self {
            client: match settings.compression {
                Compression::Gzip => client.send_compressed(CompressionEncoding::Gzip),
                Compression::None => client,
            },
            endpoint: settings.endpoint.to_string(),
            assumes_tls: settings.assumes_tls,
            headers: settings.headers,
            timeout: settings.timeout,
            health: Health::new(statistics.output()),
            statistics,
        }
    }

    /// Delivers spans until the inbox is closed.
    pub(super) async fn run(mut self, mut inbox: Inbox) {
        while let Some(batch) = inbox.next_spans().await {
            self.deliver(&batch).await;
        }
    }

    async fn deliver(&mut self, batch: &Arc<SpanBatch>) {
        let (message, spans) = (request(batch), batch.spans());
        let mut backoff = backoff();
        for attempt in 1..=ATTEMPTS {
            let status = match self.send(message.clone()).await {
                Ok(partial) => return self.settle(batch, &partial),
                Err(status) => status,
            };
            let (reason, verdict) = (reason(status.code()), verdict(&status));
            let (endpoint, assumes_tls) = (&self.endpoint, self.assumes_tls);
            let failure = Failure { endpoint, assumes_tls, status: &status, verdict, items: Items::Spans };
            self.health.failed(reason, &failure);
            let delay = match verdict {
                Verdict::Retry => backoff.next().unwrap_or(LONGEST_WAIT),
                Verdict::Throttled(delay) => delay,
                Verdict::Permanent => return self.statistics.spans(Some(reason), spans),
            };
            if attempt == ATTEMPTS {
                return self.statistics.spans(Some(reason), spans);
            }
            tokio::time::sleep_until(Instant::now() + delay).await;
        }
    }

    /// Sends a request once.
    async fn send(&mut self, message: ExportTraceServiceRequest) -> Result<ExportTracePartialSuccess, Status> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.headers.clone();
        request.set_timeout(self.timeout);
        // The channel's timeout excludes connecting.
        let answer = tokio::time::timeout(self.timeout, self.client.export(request)).await.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!("no answer within {} ms", self.timeout.as_millis())))
        })?;
        Ok(answer.into_inner().partial_success.unwrap_or_default())
    }

    fn settle(&mut self, batch: &SpanBatch, partial: &ExportTracePartialSuccess) {
        let spans = batch.spans();
        let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0).min(spans);
        self.statistics.spans(None, spans - rejected);
        self.statistics.spans(Some(REJECTED), rejected);
        if rejected == 0 {
            batch.accept();
            return self.health.works();
        }
        let (endpoint, message) = (&self.endpoint, quoted(&partial.error_message));
        self.health.failed(REJECTED, &format!("{endpoint} rejected {rejected} spans, which are lost: {message}"));
    }
}
