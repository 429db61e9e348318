//! Detects late ticks, and serves systemd's watchdog (`WatchdogSec=`, sd_watchdog_enabled(3)).

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sd_notify::NotifyState;
use tokio::{sync::Notify, time::Instant};

/// The number of intervals after which a tick counts as late.
const LATE: u32 = 3;

/// A monitor of the worker's ticks. Clones share it: one thread measures, and another one serves the service manager.
#[derive(Clone)]
pub struct Watchdog(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Wakes [`Watchdog::due`] when the sidecar is ready.
    ready: Notify,
}

struct State {
    interval: Duration,
    /// The end of the last tick.
    last: Instant,
    late: u64,
    /// True once the sidecar is ready.
    is_ready: bool,
    /// The watchdog timeout of systemd; `None` if its watchdog is off, or before the sidecar is ready.
    limit: Option<Duration>,
    /// The time of the last message to systemd.
    fed: Instant,
}

impl State {
    fn is_late(&self) -> bool {
        self.last.elapsed() > self.interval * LATE
    }

    /// Sends systemd a message, unless the next tick is late.
    fn feed(&mut self) {
        self.fed = Instant::now();
        if self.limit.is_some() && !self.is_late() {
            notify(NotifyState::Watchdog);
        }
    }
}

impl Watchdog {
    /// Creates a monitor of ticks of this interval.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        let now = Instant::now();
        let state = State { interval, last: now, late: 0, is_ready: false, limit: None, fed: now };
        Self(Arc::new(Shared { state: Mutex::new(state), ready: Notify::new() }))
    }

    /// Starts to monitor ticks, and notifies the service manager. The environment names it.
    pub fn ready(&self) {
        notify(NotifyState::Ready);
        self.limit(sd_notify::watchdog_enabled());
    }

    fn limit(&self, limit: Option<Duration>) {
        let mut state = self.state();
        (state.last, state.fed, state.is_ready, state.limit) = (Instant::now(), Instant::now(), true, limit);
        drop(state);
        self.0.ready.notify_one();
    }

    /// Changes the interval of the ticks. The next tick is due after one interval.
    pub fn set_interval(&self, interval: Duration) {
        let mut state = self.state();
        (state.interval, state.last) = (interval, Instant::now());
    }

    /// Records the end of a tick.
    pub fn tick(&self) {
        let mut state = self.state();
        let since = state.last.elapsed();
        if state.is_late() {
            state.late += 1;
            tracing::warn!(
                "snapshot is late: {:.1} s since the last one, at an interval of {:.1} s; the machine is overloaded, or the kernel \
                 delayed a read",
                since.as_secs_f64(),
                state.interval.as_secs_f64()
            );
        }
        state.last = Instant::now();
        state.feed();
    }

    /// Returns true once the sidecar is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state().is_ready
    }

    /// Returns true if the next tick is late.
    #[must_use]
    pub fn is_late(&self) -> bool {
        let state = self.state();
        state.is_ready && state.is_late()
    }

    /// Returns the number of late ticks.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.state().late
    }

    /// Waits until half of the timeout has passed since the last message. Waits forever if the watchdog is off.
    /// Cancel safe.
    pub async fn due(&self) {
        let due = {
            let state = self.state();
            state.limit.map(|limit| state.fed + limit / 2)
        };
        match due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => self.0.ready.notified().await,
        }
    }

    /// Sends systemd a message, unless the next tick is late.
    pub fn feed(&self) {
        self.state().feed();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let watchdog = Watchdog::new(INTERVAL);
        for (after, late) in [(1000, 0), (3000, 0), (3001, 1), (1000, 1), (60_000, 2)] {
            tokio::time::advance(Duration::from_millis(after)).await;
            watchdog.tick();
            assert_eq!(watchdog.late(), late, "after {after} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_longer_interval_is_not_late() {
        let watchdog = Watchdog::new(INTERVAL);
        watchdog.set_interval(INTERVAL * 60);
        tokio::time::advance(INTERVAL * 61).await;
        watchdog.tick();
        assert_eq!(watchdog.late(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_are_due_twice_per_timeout_once_the_sidecar_is_ready() {
        let watchdog = Watchdog::new(INTERVAL);
        assert!(tokio::time::timeout(Duration::from_secs(60), watchdog.due()).await.is_err());
        watchdog.limit(Some(Duration::from_secs(10)));
        let begun = Instant::now();
        for nth in 1..4 {
            watchdog.due().await;
            watchdog.feed();
            assert_eq!(begun.elapsed(), Duration::from_secs(5 * nth));
        }
        assert!(watchdog.state().is_late());
    }
}
