//! Delivers spans in order, with retries.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
use tokio::time::Instant;

use super::{
    client::Client,
    delivery::{LONGEST_WAIT, REJECTED, backoff},
    failure::{Verdict, quoted},
};
use crate::{Statistics, health::Health, mailbox::Inbox, spans::request, telemetry::SpanBatch};

/// Most attempts to deliver spans. Later spans wait meanwhile.
const ATTEMPTS: usize = 5;

/// The delivery of spans to one endpoint.
pub(super) struct TraceDelivery {
    client: Client,
    endpoint: String,
    statistics: Statistics,
    health: Health,
}

impl TraceDelivery {
    pub(super) fn new(client: Client, statistics: Statistics) -> Self {
        Self { endpoint: client.endpoint(), client, health: Health::new(statistics.output()), statistics }
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
            let failure = match self.client.spans(message.clone()).await {
                Ok(partial) => return self.settle(batch, &partial),
                Err(failure) => failure,
            };
            let reason = failure.reason();
            self.health.failed(reason, &failure);
            let delay = match failure.verdict {
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
