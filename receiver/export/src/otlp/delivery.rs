//! Delivers telemetry of any kind in order, with retries.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    failure::{Failure, REJECTED, Verdict},
    kind::{Encoded, Kind},
    replacement::Replacement,
    transport::{Reply, Transport},
};
use crate::{Statistics, bus::Subscription, health::Health, telemetry::ErrorType};

/// The back-off starts at one second and doubles up to half a minute. Random jitter of up to one more back-off
/// keeps a fleet of nodes from reconnecting at once.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The delivery of one kind of telemetry to one endpoint.
pub(super) struct Delivery<K, T> {
    transport: T,
    /// The transport that replaces the current one.
    replacement: Replacement<T>,
    statistics: Statistics,
    health: Health,
    kind: Arc<K>,
}

/// The progress of a batch.
struct Progress<K: Kind> {
    batch: Arc<K::Batch>,
    /// The start of the first attempt.
    began: Option<Instant>,
    /// The number of items with a final outcome.
    done: u64,
    /// The last reason of a permanent refusal.
    refused: ErrorType,
}

/// The attempts to deliver a batch, or the batch that replaced it meanwhile.
struct Attempts {
    backoff: ExponentialBackoff,
    failures: u32,
    /// True after the bus was closed: a batch gets one more attempt.
    is_last: bool,
}

/// The end of the attempts to send one request.
#[derive(PartialEq, Eq)]
enum End {
    /// Each item of the request has a final outcome.
    Settled,
    /// A newer batch replaced the batch of the request, or another transport the one that sent it.
    Replaced,
    /// There is no further attempt.
    GaveUp,
}

impl<K: Kind, T: Transport> Delivery<K, T> {
    pub(super) fn new(kind: K, transport: T, statistics: Statistics) -> Self {
        let health = Health::new(statistics.output());
        Self { transport, replacement: Replacement::default(), statistics, health, kind: kind.into() }
    }

    /// Returns a handle that replaces the transport.
    pub(super) fn replacement(&self) -> Replacement<T> {
        self.replacement.clone()
    }

    /// Delivers batches until the bus is closed.
    pub(super) async fn run(mut self, mut subscription: Subscription) {
        while let Some(batch) = self.next(&mut subscription).await {
            let mut progress = Progress::new(batch);
            let mut attempts = Attempts { backoff: backoff(), failures: 0, is_last: false };
            while self.deliver(&mut progress, &mut attempts, &mut subscription).await == End::Replaced {}
        }
    }

    /// Waits for the next batch. Another transport can replace the current one meanwhile.
    async fn next(&mut self, subscription: &mut Subscription) -> Option<Arc<K::Batch>> {
        loop {
            tokio::select! {
                biased;
                transport = self.replacement.wait() => self.transport = transport,
                batch = K::next(subscription) => return batch,
            }
        }
    }

    /// Delivers the requests of a batch in order. A newer batch can replace it in `progress`.
    async fn deliver(
        &mut self,
        progress: &mut Progress<K>,
        attempts: &mut Attempts,
        subscription: &mut Subscription,
    ) -> End {
        let (batch, kind) = (Arc::clone(&progress.batch), Arc::clone(&self.kind));
        for request in kind.requests(&batch, self.transport.encoding()) {
            let end = self.deliver_request(&request, progress, attempts, subscription).await;
            if end != End::Settled {
                return end;
            }
        }
        kind.end(&batch);
        K::finish(&batch, progress.refused, progress.elapsed(), &self.statistics);
        if progress.refused.is_none() {
            self.health.works();
        }
        End::Settled
    }

    /// Sends a request until its items have a final outcome, or the attempts end.
    async fn deliver_request(
        &mut self,
        request: &Encoded,
        progress: &mut Progress<K>,
        attempts: &mut Attempts,
        subscription: &mut Subscription,
    ) -> End {
        let items = request.items;
        loop {
            progress.began.get_or_insert_with(Instant::now);
            let failure = match self.send(request).await {
                Ok(reply) => {
                    // The reply does not say which items were rejected.
                    self.kind.acknowledge(&progress.batch, &request.indices);
                    let rejected = self.rejected(&reply, items);
                    progress.settle(items - rejected, None, &self.statistics);
                    progress.settle(rejected, Some(REJECTED), &self.statistics);
                    attempts.backoff = backoff();
                    return End::Settled;
                }
                Err(failure) => failure,
            };
            self.report(&failure);
            let reason = failure.reason;
            attempts.failures += 1;
            if failure.verdict() == Verdict::Permanent {
                progress.settle(items, Some(reason), &self.statistics);
                return End::Settled;
            }
            if attempts.are_over(&failure, K::ATTEMPTS) {
                progress.give_up(reason, &self.statistics);
                if attempts.is_last {
                    tracing::warn!(endpoint = self.transport.destination().endpoint, "the last snapshot is lost");
                }
                return End::GaveUp;
            }
            if self.wait(&failure, progress, attempts, subscription).await {
                return End::Replaced;
            }
        }
    }

    /// Waits before the next attempt. Returns true if the requests must be encoded again: a newer batch replaced the current one, or
    /// another transport, which ends the wait. After the bus was closed, the next attempt begins at once, unless the server requested the
    /// delay.
    async fn wait(
        &mut self,
        failure: &Failure,
        progress: &mut Progress<K>,
        attempts: &mut Attempts,
        subscription: &mut Subscription,
    ) -> bool {
        let requested = if let Verdict::Throttled(delay) = failure.verdict() { Some(delay) } else { None };
        let delay = requested.unwrap_or_else(|| attempts.backoff.next().unwrap_or(LONGEST_WAIT));
        let until = Instant::now() + delay;
        let mut is_replaced = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return is_replaced,
                transport = self.replacement.wait() => {
                    self.transport = transport;
                    attempts.backoff = backoff();
                    progress.done = 0;
                    return true;
                }
                newer = K::next(subscription), if K::ATTEMPTS.is_none() && !attempts.is_last => match newer {
                    Some(newer) => {
                        progress.give_up(failure.reason, &self.statistics);
                        *progress = Progress::new(newer);
                        is_replaced = true;
                    }
                    None => {
                        attempts.is_last = true;
                        if requested.is_none() {
                            return is_replaced;
                        }
                    }
                },
            }
        }
    }

    async fn send(&mut self, request: &Encoded) -> Result<Reply, Failure> {
        let endpoint = &self.transport.destination().endpoint;
        let span = tracing::debug_span!("export", items = request.items, endpoint);
        self.transport.send(request.bytes.clone()).instrument(span).await
    }

    /// Returns the number of items that the collector rejected, and logs its message.
    fn rejected(&mut self, reply: &Reply, items: u64) -> u64 {
        let rejected = reply.rejected.min(items);
        let failure = Failure::partial(rejected, &reply.message);
        if rejected > 0 {
            self.report(&failure);
        } else if !reply.message.is_empty() {
            let endpoint = &self.transport.destination().endpoint;
            tracing::debug!(endpoint, "the collector accepted a delivery with a warning: {}", failure.cause);
        }
        rejected
    }

    fn report(&mut self, failure: &Failure) {
        self.health.failed(failure.reason, &self.transport.destination().describe(failure));
    }
}

impl<K: Kind> Progress<K> {
    fn new(batch: Arc<K::Batch>) -> Self {
        Self { batch, began: None, done: 0, refused: None }
    }

    fn elapsed(&self) -> Duration {
        self.began.as_ref().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Counts items with a final outcome.
    fn settle(&mut self, items: u64, outcome: ErrorType, statistics: &Statistics) {
        if items > 0 {
            K::count(statistics, outcome, items);
            self.done += items;
            self.refused = outcome.or(self.refused);
        }
    }

    /// Counts the end of the attempts by a failure.
    fn give_up(&self, reason: &'static str, statistics: &Statistics) {
        K::count(statistics, Some(reason), K::items(&self.batch).saturating_sub(self.done));
        K::give_up(reason, self.elapsed(), statistics);
    }
}

impl Attempts {
    /// Returns true if no attempt follows a failure.
    fn are_over(&self, failure: &Failure, most: Option<u32>) -> bool {
        most.is_some_and(|most| self.failures >= most) || (self.is_last && failure.verdict() == Verdict::Retry)
    }
}

/// Returns the waits between attempts.
fn backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(FIRST_WAIT)
        .with_max_delay(LONGEST_WAIT)
        .with_factor(2.0)
        .without_max_times()
        .with_jitter()
        .build()
}
