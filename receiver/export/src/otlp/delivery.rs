//! Delivers snapshots in order, with retries.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    client::Client,
    failure::{Failure, Verdict, quoted},
};
use crate::{
    REQUEST_LIMIT, Statistics,
    health::Health,
    mailbox::Inbox,
    split::Part,
    split::requests,
    telemetry::{ErrorType, Snapshot},
};

/// The back-off starts at one second and doubles up to half a minute. Random jitter of up to one more back-off
/// keeps a fleet of nodes from reconnecting at once.
const FIRST_WAIT: Duration = Duration::from_secs(1);
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The `error.type` of rejected points that the semantic conventions define.
pub(super) const REJECTED: &str = "rejected";

/// The delivery to one endpoint.
pub(super) struct Delivery {
    client: Client,
    endpoint: String,
    statistics: Statistics,
    health: Health,
}

impl Delivery {
    pub(super) fn new(client: Client, statistics: Statistics) -> Self {
        Self { endpoint: client.endpoint(), client, health: Health::new(statistics.output()), statistics }
    }

    /// Delivers snapshots until the inbox is closed.
    pub(super) async fn run(mut self, mut inbox: Inbox) {
        while let Some(snapshot) = inbox.next().await {
            Attempts::new(snapshot).finish(&mut self, &mut inbox).await;
        }
    }

    /// Sends one request once. Returns the number of rejected points.
    async fn send(&mut self, part: Part) -> Result<u64, Failure> {
        let partial = self.client.metrics(part.request).await?;
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
        Ok(rejected)
    }

    fn partly_refused(&mut self, rejected: u64, partial: &ExportMetricsPartialSuccess) {
        let (endpoint, message) = (&self.endpoint, quoted(&partial.error_message));
        let error = format!("{endpoint} rejected {rejected} points of a delivery, which are lost: {message}");
        self.health.failed(REJECTED, &error);
    }
}

/// The attempts to deliver a snapshot. A newer snapshot replaces it between two attempts.
struct Attempts {
    snapshot: Arc<Snapshot>,
    /// Start of the first attempt.
    began: Option<Instant>,
    /// Number of parts that were accepted or refused permanently, and of their points.
    done: (usize, u64),
    /// The last reason of a permanent refusal.
    refused: ErrorType,
    backoff: ExponentialBackoff,
    last_chance: bool,
}

impl Attempts {
    fn new(snapshot: Arc<Snapshot>) -> Self {
        Self { snapshot, began: None, done: (0, 0), refused: None, backoff: backoff(), last_chance: false }
    }

    async fn finish(mut self, delivery: &mut Delivery, inbox: &mut Inbox) {
        // Encoded for each attempt: while the collector is unreachable, only the snapshot stays in memory.
        while let Some(part) = requests(&self.snapshot, REQUEST_LIMIT).nth(self.done.0) {
            let points = part.points;
            self.began.get_or_insert_with(Instant::now);
            let span = tracing::debug_span!("export", points, endpoint = delivery.endpoint);
            match delivery.send(part).instrument(span).await {
                Ok(rejected) => {
                    self.settle(points - rejected, None, delivery);
                    self.settle(rejected, Some(REJECTED), delivery);
                    self.done.0 += 1;
                    self.backoff = backoff();
                }
                Err(failure) => {
                    let reason = failure.reason();
                    delivery.health.failed(reason, &failure);
                    match failure.verdict {
                        Verdict::Permanent => {
                            self.settle(points, Some(reason), delivery);
                            self.done.0 += 1;
                        }
                        Verdict::Retry if self.last_chance => {
                            self.give_up(reason, delivery);
                            tracing::warn!(endpoint = delivery.endpoint, "the last snapshot is lost");
                            return;
                        }
                        Verdict::Retry => {
                            let delay = self.backoff.next().unwrap_or(LONGEST_WAIT);
                            self.wait(delay, true, reason, delivery, inbox).await;
                        }
                        Verdict::Throttled(delay) => self.wait(delay, false, reason, delivery, inbox).await,
                    }
                }
            }
        }
        delivery.statistics.settled(self.snapshot.time);
        delivery.statistics.exported(self.refused, self.elapsed());
        if self.refused.is_none() {
            delivery.health.works();
        }
    }

    fn elapsed(&self) -> Duration {
        self.began.as_ref().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Counts points with a final outcome.
    fn settle(&mut self, points: u64, outcome: ErrorType, delivery: &Delivery) {
        if points > 0 {
            delivery.statistics.points(outcome, points);
            self.done.1 += points;
            self.refused = outcome.or(self.refused);
        }
    }

    /// Counts the end of the attempts by a failure.
    fn give_up(&self, reason: &'static str, delivery: &Delivery) {
        delivery.statistics.points(Some(reason), self.snapshot.points().saturating_sub(self.done.1));
        delivery.statistics.exported(Some(reason), self.elapsed());
        delivery.statistics.dropped();
    }

    /// Waits before the next attempt, and takes the newest snapshot that arrived meanwhile. At shutdown it makes
    /// one attempt at once, unless the server requested the delay. `reason` is the failure of the last attempt.
    async fn wait(
        &mut self,
        delay: Duration,
        hurry: bool,
        reason: &'static str,
        delivery: &Delivery,
        inbox: &mut Inbox,
    ) {
        let until = Instant::now() + delay;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                newer = inbox.next(), if !self.last_chance => match newer {
                    Some(newer) => {
                        self.give_up(reason, delivery);
                        (self.snapshot, self.began, self.done, self.refused) = (newer, None, (0, 0), None);
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

/// Returns the waits between attempts.
pub(super) fn backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(FIRST_WAIT)
        .with_max_delay(LONGEST_WAIT)
        .with_factor(2.0)
        .without_max_times()
        .with_jitter()
        .build()
}
