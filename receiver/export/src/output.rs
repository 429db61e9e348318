//! Outputs, and the fan-out of snapshots to them.

use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll, time::Duration};

use tokio::{sync::oneshot, task::AbortHandle, time::Instant};

use super::{
    Statistics,
    json::OutputFile,
    mailbox::{Inbox, Mailbox, mailbox},
};
use crate::telemetry::{Snapshot, SpanBatch, UnixNanos};

/// A running output of any kind.
pub struct Output {
    mailbox: Mailbox,
    /// The mailbox for spans. It may be the mailbox for snapshots.
    spans: Mailbox,
    /// True if the output delivers spans to a receiver.
    exports_spans: bool,
    finished: oneshot::Receiver<()>,
    task: Option<AbortHandle>,
    statistics: Statistics,
    /// The file that the output appends to.
    file: Option<OutputFile>,
}

impl Output {
    /// Spawns a task in the current runtime. The task runs until the inbox is closed and empty.
    ///
    /// The task has an inbox for snapshots and an inbox for spans.
    pub(super) fn in_task<F>(statistics: Statistics, run: impl FnOnce(Inbox, Inbox) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (snapshots, inbox) = mailbox(statistics.clone());
        let (spans, spans_inbox) = mailbox(statistics.clone());
        let (done, finished) = oneshot::channel();
        let work = run(inbox, spans_inbox);
        let task = tokio::spawn(async move {
            work.await;
            // The receiver is read at shutdown only.
            let _ = done.send(());
        });
        let task = Some(task.abort_handle());
        Self { mailbox: snapshots, spans, exports_spans: true, finished, task, statistics, file: None }
    }

    /// Spawns a thread for blocking work. The thread runs until the inbox is closed and empty.
    ///
    /// The runtime's blocking pool does not fit, because the runtime would wait for a write that never ends. The
    /// thread starts when the runtime first runs. A thread that started before the process dropped its privileges
    /// would not be confined by seccomp and Landlock.
    pub(super) fn in_thread(statistics: Statistics, run: impl FnOnce(Inbox) + Send + 'static) -> Self {
        let (mailbox, inbox) = mailbox(statistics.clone());
        let (done, finished) = oneshot::channel();
        let output = statistics.output();
        let work = move || {
            run(inbox);
            let _ = done.send(());
        };
        tokio::spawn(async move {
            if let Err(error) = std::thread::Builder::new().name(format!("output-{output}")).spawn(work) {
                tracing::error!(output, "cannot start a thread: {error}; check the limits on tasks of this process");
            }
        });
        Self { spans: mailbox.clone(), mailbox, exports_spans: true, finished, task: None, statistics, file: None }
    }

    /// Returns the output with the file that it appends to.
    #[must_use]
    pub(super) fn with_file(self, file: OutputFile) -> Self {
        Self { file: Some(file), ..self }
    }

    /// Returns the output for people, which shows spans and exports none.
    #[must_use]
    pub(super) fn for_people(self) -> Self {
        Self { exports_spans: false, ..self }
    }

    /// Returns the delivery statistics of the output.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }
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
    running: Vec<Output>,
}

impl Outputs {
    /// Creates the fan-out to these outputs.
    #[must_use]
    pub fn new(outputs: Vec<Output>) -> Self {
        Self { running: outputs }
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

    /// Passes a snapshot to every output, without waiting.
    pub fn publish(&self, snapshot: &Arc<Snapshot>) {
        self.running.iter().for_each(|output| output.mailbox.put(Arc::clone(snapshot)));
    }

    /// Passes spans to every output, without waiting. Returns the number of outputs that export them.
    pub fn publish_spans(&self, batch: &Arc<SpanBatch>) -> usize {
        self.running.iter().for_each(|output| output.spans.put_spans(batch));
        self.running.iter().filter(|output| output.exports_spans).count()
    }

    /// Returns the time up to which every output has settled its snapshots. Returns zero while an output has
    /// settled none.
    ///
    /// All data up to this time has reached every receiver that accepts it. An unreachable receiver or a full disk
    /// delays the time. A permanent refusal settles a snapshot, because the receiver may refuse all later ones
    /// too. An output that has ended delays nothing. If no output is left, all snapshots are settled.
    #[must_use]
    pub fn delivered(&self) -> UnixNanos {
        let running = self.running.iter().filter(|output| !output.mailbox.is_closed());
        let settled = running.map(|output| output.statistics.totals().settled.unwrap_or(UnixNanos(0)));
        settled.min().unwrap_or(UnixNanos(u64::MAX))
    }

    /// Waits until no output is left, for example after `| head`. Cancel safe.
    ///
    /// # Errors
    /// If an output fails.
    pub async fn ended(&mut self) -> Result<(), OutputFailed> {
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
        let closing: Vec<_> = self
            .running
            .into_iter()
            .map(|Output { mailbox, spans, finished, task, statistics, .. }| {
                drop((mailbox, spans));
                (finished, task, statistics)
            })
            .collect();
        let mut failed = Ok(());
        for (finished, task, statistics) in closing {
            let output = statistics.output();
            match tokio::time::timeout_at(until, finished).await {
                Ok(end) => failed = failed.and(end.map_err(|_| OutputFailed { output })),
                Err(_) => {
                    if let Some(task) = task {
                        task.abort();
                    }
                    statistics.dropped();
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
    use crate::testing::{after, lost};

    const NOTHING: UnixNanos = UnixNanos(0);
    const EVERYTHING: UnixNanos = UnixNanos(u64::MAX);

    /// Returns an output that settles every snapshot, and ends at the first one from `end` on.
    fn settling_until(end: UnixNanos) -> Output {
        let statistics = Statistics::new("settling");
        let counted = statistics.clone();
        Output::in_task(statistics, move |mut inbox, _| async move {
            while let Some(snapshot) = inbox.next().await.filter(|snapshot| snapshot.time < end) {
                counted.settled(snapshot.time);
            }
        })
    }

    /// Returns an output that takes snapshots and settles none.
    fn holding() -> Output {
        Output::in_task(Statistics::new("holding"), |mut inbox, _| async move { while inbox.next().await.is_some() {} })
    }

    async fn reached(outputs: &Outputs, time: UnixNanos) {
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
        let outputs = Outputs::new(vec![settling_until(EVERYTHING), settling_until(after(2))]);
        assert_eq!(outputs.delivered(), NOTHING);
        outputs.publish(&lost(1, after(1)));
        reached(&outputs, after(1)).await;
        // The second output ends with this snapshot, and then delays nothing even before the next snapshot is
        // published.
        outputs.publish(&lost(1, after(2)));
        reached(&outputs, after(2)).await;
        outputs.publish(&lost(1, after(3)));
        reached(&outputs, after(3)).await;
    }

    #[tokio::test]
    async fn an_output_delays_the_delivered_time_until_it_ends() {
        let mut outputs = Outputs::new(vec![settling_until(EVERYTHING), holding()]);
        outputs.publish(&lost(1, after(1)));
        let first = outputs.statistics().remove(0);
        while first.totals().settled.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(outputs.delivered(), NOTHING);
        outputs.running.pop();
        assert_eq!(outputs.delivered(), after(1));
    }

    /// Returns an output that panics at its first snapshot.
    fn failing() -> Output {
        Output::in_task(Statistics::new("failing"), |mut inbox, _| async move {
            inbox.next().await;
            panic!("as the test wants it");
        })
    }

    #[tokio::test]
    async fn a_failed_output_is_reported_with_its_name() {
        let mut outputs = Outputs::new(vec![settling_until(EVERYTHING), failing()]);
        outputs.publish(&lost(1, after(1)));
        assert_eq!(outputs.ended().await, Err(OutputFailed { output: "failing" }));

        let outputs = Outputs::new(vec![failing(), settling_until(EVERYTHING)]);
        outputs.publish(&lost(1, after(1)));
        assert_eq!(outputs.shutdown(Duration::from_secs(20)).await, Err(OutputFailed { output: "failing" }));
    }

    #[tokio::test]
    async fn ended_outputs_are_no_failure() {
        let mut outputs = Outputs::new(vec![settling_until(NOTHING), settling_until(NOTHING)]);
        outputs.publish(&lost(1, after(1)));
        assert_eq!(outputs.ended().await, Ok(()));
        assert_eq!(outputs.shutdown(Duration::from_secs(20)).await, Ok(()));
    }

    #[tokio::test]
    async fn without_outputs_everything_is_delivered() {
        assert_eq!(Outputs::new(Vec::new()).delivered(), EVERYTHING);
        let outputs = Outputs::new(vec![settling_until(NOTHING)]);
        outputs.publish(&lost(1, after(1)));
        reached(&outputs, EVERYTHING).await;
    }
}
