//! Detects late ticks, and serves systemd's watchdog (`WatchdogSec=`, sd_watchdog_enabled(3)).

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Instant;

/// The number of intervals after which a tick counts as late.
const LATE: u32 = 3;

/// A monitor of the worker's ticks.
pub struct Watchdog {
    interval: Duration,
    /// The end of the last tick.
    last: Instant,
    late: u64,
    /// The watchdog timeout of systemd; `None` if its watchdog is off.
    limit: Option<Duration>,
    /// The time of the last message to systemd.
    fed: Instant,
}

impl Watchdog {
    /// Starts to monitor ticks of this interval. The environment names the service manager.
    #[must_use]
    pub fn start(interval: Duration) -> Self {
        notify(NotifyState::Ready);
        Self::with(interval, sd_notify::watchdog_enabled())
    }

    fn with(interval: Duration, limit: Option<Duration>) -> Self {
        let now = Instant::now();
        Self { interval, last: now, late: 0, limit, fed: now }
    }

    /// Records the end of a tick.
    pub fn tick(&mut self) {
        let since = self.last.elapsed();
        if self.is_late() {
            self.late += 1;
            tracing::warn!(
                "snapshot is late: {:.1} s since the last one, at an interval of {:.1} s; the machine is overloaded, or the kernel \
                 delayed a read",
                since.as_secs_f64(),
                self.interval.as_secs_f64()
            );
        }
        self.last = Instant::now();
        self.feed();
    }

    /// Returns the number of late ticks.
    #[must_use]
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Waits until half of the timeout has passed since the last message. Waits forever if the watchdog is off.
    /// Cancel safe.
    pub async fn due(&self) {
        match self.limit {
            Some(limit) => tokio::time::sleep_until(self.fed + limit / 2).await,
            None => std::future::pending().await,
        }
    }

    /// Sends systemd a message, unless the next tick is late.
    pub fn feed(&mut self) {
        self.fed = Instant::now();
        if self.limit.is_some() && !self.is_late() {
            notify(NotifyState::Watchdog);
        }
    }

    fn is_late(&self) -> bool {
        self.last.elapsed() > self.interval * LATE
    }
}

/// Notifies the service manager, if there is one.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!("cannot notify the service manager: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_tick_is_late_after_three_intervals() {
        let mut watchdog = Watchdog::with(INTERVAL, None);
        for (after, late) in [(1000, 0), (3000, 0), (3001, 1), (1000, 1), (60_000, 2)] {
            tokio::time::advance(Duration::from_millis(after)).await;
            watchdog.tick();
            assert_eq!(watchdog.late(), late, "after {after} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn messages_are_due_twice_per_timeout() {
        let begun = Instant::now();
        let mut watchdog = Watchdog::with(INTERVAL, Some(Duration::from_secs(10)));
        for nth in 1..4 {
            watchdog.due().await;
            watchdog.feed();
            assert_eq!(begun.elapsed(), Duration::from_secs(5 * nth));
        }
        assert!(watchdog.is_late());
    }
}
