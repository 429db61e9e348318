//! Delivers snapshots in order, with retries.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, metrics_service_client::MetricsServiceClient,
};
use tokio::time::Instant;
use tonic::{Request, Status, codec::CompressionEncoding, metadata::MetadataMap, transport::Channel};

use super::{
    Compression, Settings,
    failure::{Failure, Verdict, quoted, reason, verdict},
};
use crate::{
    export::{REQUEST_LIMIT, Statistics, health::Health, mailbox::Inbox, split::Part, split::requests},
    telemetry::Snapshot,
};

/// The back-off starts at one second and doubles up to half a minute. Random jitter of up to one more back-off
/// keeps a fleet of nodes from reconnecting at once.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The delivery to one endpoint.
pub(super) struct Delivery {
    client: MetricsServiceClient<Channel>,
    endpoint: String,
    headers: MetadataMap,
    timeout: Duration,
    statistics: Statistics,
    health: Health,
}

impl Delivery {
    pub(super) fn new(settings: Settings, channel: Channel, statistics: Statistics) -> Self {
        let client = MetricsServiceClient::new(channel).accept_compressed(CompressionEncoding::Gzip);
        Self {
            client: match settings.compression {
                Compression::Gzip => client.send_compressed(CompressionEncoding::Gzip),
                Compression::None => client,
            },
            endpoint: settings.endpoint.to_string(),
            headers: settings.headers,
            timeout: settings.timeout,
            health: Health::new(statistics.output()),
            statistics,
        }
    }

    /// Delivers snapshots until the inbox is closed.
    pub(super) async fn run(mut self, mut inbox: Inbox) {
        while let Some(snapshot) = inbox.next().await {
            Attempts::new(snapshot).finish(&mut self, &mut inbox).await;
        }
    }

    /// Sends one request once. Returns the number of accepted points.
    async fn send(&mut self, part: Part) -> Result<u64, Status> {
        let mut request = Request::new(part.request);
        *request.metadata_mut() = self.headers.clone();
        request.set_timeout(self.timeout);
        // The channel's timeout excludes connecting.
        let answer = tokio::time::timeout(self.timeout, self.client.export(request)).await.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!("no answer within {} ms", self.timeout.as_millis())))
        })?;
        let partial = answer.into_inner().partial_success.unwrap_or_default();
        let rejected = u64::try_from(partial.rejected_data_points).unwrap_or(0).min(part.points);
        if rejected > 0 {
            self.partly_refused(rejected, &partial);
        } else if !partial.error_message.is_empty() {
            tracing::debug!(
                endpoint = self.endpoint,
                "the collector accepted all points with a warning: {}",
                quoted(&partial.error_message)
            );
        }
        Ok(part.points - rejected)
    }

    fn partly_refused(&mut self, rejected: u64, partial: &ExportMetricsPartialSuccess) {
        const REASON: &str = "partial_success";
        self.statistics.failed(REASON);
        self.statistics.rejected(rejected);
        let (endpoint, message) = (&self.endpoint, quoted(&partial.error_message));
        let error = format!("{endpoint} rejected {rejected} points of a delivery, which are lost: {message}");
        self.health.failed(REASON, &error);
    }

    fn failed(&mut self, status: &Status, verdict: Verdict) {
        let reason = reason(status.code());
        self.statistics.failed(reason);
        self.health.failed(reason, &Failure { endpoint: &self.endpoint, status, verdict });
    }
}

/// The attempts to deliver a snapshot. A newer snapshot replaces it between two attempts.
struct Attempts {
    snapshot: Arc<Snapshot>,
    /// The number of parts that were accepted or refused permanently.
    done: usize,
    spent: Duration,
    whole: bool,
    backoff: ExponentialBackoff,
    last_chance: bool,
}

impl Attempts {
    fn new(snapshot: Arc<Snapshot>) -> Self {
        Self { snapshot, done: 0, spent: Duration::ZERO, whole: true, backoff: backoff(), last_chance: false }
    }

    async fn finish(mut self, delivery: &mut Delivery, inbox: &mut Inbox) {
        // Encoded for each attempt: while the collector is unreachable, only the snapshot stays in memory.
        while let Some(part) = requests(&self.snapshot, REQUEST_LIMIT).nth(self.done) {
            let began = Instant::now();
            let points = part.points;
            let outcome = delivery.send(part).await;
            self.spent += began.elapsed();
            match outcome {
                Ok(accepted) => {
                    delivery.statistics.accepted(accepted);
                    self.whole &= accepted == points;
                    self.done += 1;
                    self.backoff = backoff();
                }
                Err(status) => {
                    let verdict = verdict(&status);
                    delivery.failed(&status, verdict);
                    match verdict {
                        Verdict::Permanent => {
                            self.whole = false;
                            self.done += 1;
                        }
                        Verdict::Retry if self.last_chance => {
                            delivery.statistics.dropped();
                            tracing::warn!(endpoint = delivery.endpoint, "the last snapshot is lost");
                            return;
                        }
                        Verdict::Retry => {
                            let delay = self.backoff.next().unwrap_or(LONGEST_WAIT);
                            self.wait(delay, true, delivery, inbox).await;
                        }
                        Verdict::Throttled(delay) => self.wait(delay, false, delivery, inbox).await,
                    }
                }
            }
        }
        delivery.statistics.settled(self.snapshot.time);
        if self.whole {
            delivery.statistics.delivered(self.spent);
            delivery.health.works();
        }
    }

    /// Waits before the next attempt, and takes the newest snapshot that arrived meanwhile. At shutdown it makes
    /// one attempt at once, unless the server requested the delay.
    async fn wait(&mut self, delay: Duration, hurry: bool, delivery: &Delivery, inbox: &mut Inbox) {
        let until = Instant::now() + delay;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                newer = inbox.next(), if !self.last_chance => match newer {
                    Some(newer) => {
                        delivery.statistics.dropped();
                        (self.snapshot, self.done, self.whole, self.spent) = (newer, 0, true, Duration::ZERO);
                    }
                    None => {
                        self.last_chance = true;
                        if hurry {
                            return;
                        }
                    }
                },
            }
        }
    }
}

fn backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(FIRST_WAIT)
        .with_max_delay(LONGEST_WAIT)
        .with_factor(2.0)
        .without_max_times()
        .with_jitter()
        .build()
}
