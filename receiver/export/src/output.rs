//! Running outputs.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Weak},
    task::Poll,
    time::Duration,
};

use tokio::{sync::oneshot, task::AbortHandle, time::Instant};

use super::{Bus, OutputFile, Statistics};
use crate::telemetry::UnixNanos;

/// A running output of any kind.
pub struct Output {
    /// Upgradable while the task or the thread runs.
    running: Weak<()>,
    finished: oneshot::Receiver<()>,
    task: Option<AbortHandle>,
    statistics: Statistics,
    /// The file that the output appends to.
    file: Option<OutputFile>,
}

impl Output {
    /// Spawns a task in the current runtime. `work` ends after the bus was closed.
    pub(super) fn in_task(statistics: Statistics, work: impl Future<Output = ()> + Send + 'static) -> Self {
        let (done, finished) = oneshot::channel();
        let (runs, running) = token();
        let task = tokio::spawn(async move {
            work.await;
            drop(runs);
            // The receiver is read at shutdown only.
            let _ = done.send(());
        });
        Self { running, finished, task: Some(task.abort_handle()), statistics, file: None }
    }

    /// Spawns a thread for blocking work. `work` ends after the bus was closed.
    ///
    /// The runtime's blocking pool does not fit, because the runtime would wait for a write that never ends. The
    /// thread starts when the runtime first runs. A thread that started before the process dropped its privileges
    /// would not be confined by seccomp and Landlock.
    pub(super) fn in_thread(statistics: Statistics, work: impl FnOnce() + Send + 'static) -> Self {
        let (done, finished) = oneshot::channel();
        let (runs, running) = token();
        let output = statistics.output();
        let work = move || {
            work();
            drop(runs);
            let _ = done.send(());
        };
        tokio::spawn(async move {
            if let Err(error) = std::thread::Builder::new().name(format!("output-{output}")).spawn(work) {
                tracing::error!(output, "cannot start a thread: {error}; check the limits on tasks of this process");
            }
        });
        Self { running, finished, task: None, statistics, file: None }
    }

    /// Returns the output with the file that it appends to.
    #[must_use]
    pub(super) fn with_file(self, file: OutputFile) -> Self {
        Self { file: Some(file), ..self }
    }

    /// Returns the delivery statistics of the output.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }
}

/// Returns the token of a running output, and its observer.
fn token() -> (Arc<()>, Weak<()>) {
    let token = Arc::new(());
    let observer = Arc::downgrade(&token);
    (token, observer)
}

/// An output's task or thread that panicked, or could not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("output `{output}` ended unexpectedly; the log has the reason")]
pub struct OutputFailed {
    /// The output's name.
    pub output: &'static str,
}

/// All outputs of the sidecar.
pub struct Outputs {
    bus: Bus,
    running: Vec<Output>,
}

impl Outputs {
    /// Collects the outputs that subscribe to a bus.
    #[must_use]
    pub fn new(bus: Bus, outputs: Vec<Output>) -> Self {
        Self { bus, running: outputs }
    }

    /// Returns the bus, for publishing and for further subscribers.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Returns the files of the outputs, in the order of the outputs.
    #[must_use]
    pub fn files(&self) -> Vec<OutputFile> {
        self.running.iter().filter_map(|output| output.file.clone()).collect()
    }

    /// Returns the delivery statistics of each output.
    #[must_use]
    pub fn statistics(&self) -> Vec<Statistics> {
        self.running.iter().map(|output| output.statistics.clone()).collect()
    }

    /// Returns the time up to which every output has settled its snapshots. Returns zero while an output has
    /// settled none.
    ///
    /// All data up to this time has reached every receiver that accepts it. An unreachable receiver or a full disk
    /// delays the time. A permanent refusal settles a snapshot, because the receiver may refuse all later ones
    /// too. An output that has ended delays nothing. If no output is left, all snapshots are settled.
    #[must_use]
    pub fn delivered(&self) -> UnixNanos {
        let running = self.running.iter().filter(|output| output.running.strong_count() > 0);
        let settled = running.map(|output| output.statistics.totals().settled.unwrap_or(UnixNanos(0)));
        settled.min().unwrap_or(UnixNanos(u64::MAX))
    }

    /// Waits until no output is left, for example after `| head`. Cancel safe.
    ///
    /// # Errors
    /// If an output fails.
    pub async fn wait_for_end(&mut self) -> Result<(), OutputFailed> {
        poll_fn(|context| {
            let mut failed = Ok(());
            self.running.retain_mut(|output| match Pin::new(&mut output.finished).poll(context) {
                Poll::Pending => true,
                Poll::Ready(end) => {
                    failed = failed.and(end.map_err(|_| OutputFailed { output: output.statistics.output() }));
                    false
                }
            });
            if failed.is_err() || self.running.is_empty() { Poll::Ready(failed) } else { Poll::Pending }
        })
        .await
    }

    /// Waits until every output has finished its pending snapshots, for at most `deadline` in total. Snapshots
    /// that are pending at the deadline count as dropped.
    ///
    /// # Errors
    /// If an output failed. The other outputs finish first.
    pub async fn shutdown(self, deadline: Duration) -> Result<(), OutputFailed> {
        let until = Instant::now() + deadline;
        self.bus.close();
        let mut failed = Ok(());
        for Output { finished, task, statistics, .. } in self.running {
            let output = statistics.output();
            match tokio::time::timeout_at(until, finished).await {
                Ok(end) => failed = failed.and(end.map_err(|_| OutputFailed { output })),
                Err(_) => {
                    if let Some(task) = task {
                        task.abort();
                    }
                    statistics.count_dropped_snapshot();
                    tracing::warn!(output, "the last snapshot was not delivered within {deadline:?} and is lost");
                }
            }
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Topics,
        testing::{after, lost},
    };

    const NOTHING: UnixNanos = UnixNanos(0);
    const EVERYTHING: UnixNanos = UnixNanos(u64::MAX);

    /// Returns an output that settles every snapshot, and ends at the first one from `end` on.
    fn settling_until(end: UnixNanos, bus: &Bus) -> Output {
        let statistics = Statistics::new("settling");
        let counted = statistics.clone();
        let mut subscription = bus.subscribe(Topics::SNAPSHOTS, &statistics);
        Output::in_task(statistics, async move {
            while let Some(snapshot) = subscription.snapshot().await.filter(|snapshot| snapshot.time < end) {
                counted.settled(snapshot.time);
            }
        })
    }

    /// Returns an output that takes snapshots and settles none.
    fn holding(bus: &Bus) -> Output {
        let statistics = Statistics::new("holding");
        let mut subscription = bus.subscribe(Topics::SNAPSHOTS, &statistics);
        Output::in_task(statistics, async move { while subscription.snapshot().await.is_some() {} })
    }

    fn opened(outputs: impl FnOnce(&Bus) -> Vec<Output>) -> Outputs {
        let bus = Bus::default();
        let outputs = outputs(&bus);
        Outputs::new(bus, outputs)
    }

    async fn wait_until_delivered(outputs: &Outputs, time: UnixNanos) {
        let reached = async {
            while outputs.delivered() != time {
                tokio::task::yield_now().await;
            }
        };
        let reached = tokio::time::timeout(Duration::from_secs(20), reached).await;
        assert!(reached.is_ok(), "{:?} instead of {time:?}", outputs.delivered());
    }

    #[tokio::test]
    async fn the_slowest_output_determines_the_delivered_time() {
        let outputs = opened(|bus| vec![settling_until(EVERYTHING, bus), settling_until(after(2), bus)]);
        assert_eq!(outputs.delivered(), NOTHING);
        outputs.bus().publish(&lost(1, after(1)));
        wait_until_delivered(&outputs, after(1)).await;
        // The second output ends with this snapshot, and then delays nothing even before the next snapshot is
        // published.
        outputs.bus().publish(&lost(1, after(2)));
        wait_until_delivered(&outputs, after(2)).await;
        outputs.bus().publish(&lost(1, after(3)));
        wait_until_delivered(&outputs, after(3)).await;
    }

    #[tokio::test]
    async fn an_output_delays_the_delivered_time_until_it_ends() {
        let mut outputs = opened(|bus| vec![settling_until(EVERYTHING, bus), holding(bus)]);
        outputs.bus().publish(&lost(1, after(1)));
        let first = outputs.statistics().remove(0);
        while first.totals().settled.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(outputs.delivered(), NOTHING);
        outputs.running.pop();
        assert_eq!(outputs.delivered(), after(1));
    }

    /// Returns an output that panics at its first snapshot.
    fn failing(bus: &Bus) -> Output {
        let statistics = Statistics::new("failing");
        let mut subscription = bus.subscribe(Topics::SNAPSHOTS, &statistics);
        Output::in_task(statistics, async move {
            subscription.snapshot().await;
            panic!("as the test wants it");
        })
    }

    #[tokio::test]
    async fn a_failed_output_is_reported_with_its_name() {
        let mut outputs = opened(|bus| vec![settling_until(EVERYTHING, bus), failing(bus)]);
        outputs.bus().publish(&lost(1, after(1)));
        assert_eq!(outputs.wait_for_end().await, Err(OutputFailed { output: "failing" }));

        let outputs = opened(|bus| vec![failing(bus), settling_until(EVERYTHING, bus)]);
        outputs.bus().publish(&lost(1, after(1)));
        assert_eq!(outputs.shutdown(Duration::from_secs(20)).await, Err(OutputFailed { output: "failing" }));
    }

    #[tokio::test]
    async fn ended_outputs_are_no_failure() {
        let mut outputs = opened(|bus| vec![settling_until(NOTHING, bus), settling_until(NOTHING, bus)]);
        outputs.bus().publish(&lost(1, after(1)));
        assert_eq!(outputs.wait_for_end().await, Ok(()));
        assert_eq!(outputs.shutdown(Duration::from_secs(20)).await, Ok(()));
    }

    #[tokio::test]
    async fn without_outputs_everything_is_delivered() {
        assert_eq!(opened(|_| Vec::new()).delivered(), EVERYTHING);
        let outputs = opened(|bus| vec![settling_until(NOTHING, bus)]);
        outputs.bus().publish(&lost(1, after(1)));
        wait_until_delivered(&outputs, EVERYTHING).await;
    }
}
