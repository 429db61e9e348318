//! Outputs, and the fan-out to all of them.

use std::{io, ops::ControlFlow, sync::Arc, time::Duration};

use tokio::{sync::oneshot, task::AbortHandle, time::Instant};

use super::{
    Statistics,
    mailbox::{Inbox, Mailbox, mailbox},
};
use crate::telemetry::Snapshot;

/// A running output. Its kind is known only to whoever opened it.
pub struct Output {
    mailbox: Mailbox,
    finished: oneshot::Receiver<()>,
    task: Option<AbortHandle>,
    statistics: Statistics,
}

impl Output {
    /// Runs in a task of the current runtime until the inbox is closed and empty.
    pub(super) fn in_task<F>(statistics: Statistics, run: impl FnOnce(Inbox) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (mailbox, inbox) = mailbox(statistics.clone());
        let (done, finished) = oneshot::channel();
        let work = run(inbox);
        let task = tokio::spawn(async move {
            work.await;
            // Nobody waits for it before shutdown.
            let _ = done.send(());
        });
        Self { mailbox, finished, task: Some(task.abort_handle()), statistics }
    }

    /// Runs in a thread, for what may block, until the inbox is closed and empty. A thread and not the runtime's pool: the
    /// runtime would wait for a write that never ends.
    pub(super) fn in_thread(statistics: Statistics, run: impl FnOnce(Inbox) + Send + 'static) -> io::Result<Self> {
        let (mailbox, inbox) = mailbox(statistics.clone());
        let (done, finished) = oneshot::channel();
        std::thread::Builder::new().name(format!("output-{}", statistics.output())).spawn(move || {
            run(inbox);
            let _ = done.send(());
        })?;
        Ok(Self { mailbox, finished, task: None, statistics })
    }

    /// What it did so far.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }
}

/// All outputs of the sidecar.
pub struct Outputs {
    running: Vec<Output>,
}

impl Outputs {
    /// A fan-out to these outputs.
    #[must_use]
    pub fn new(outputs: Vec<Output>) -> Self {
        Self { running: outputs }
    }

    /// What each output did so far.
    #[must_use]
    pub fn statistics(&self) -> Vec<Statistics> {
        self.running.iter().map(|output| output.statistics.clone()).collect()
    }

    /// Hands a snapshot to every output. It never waits. Breaks when no output is left, as after `| head`.
    pub fn publish(&mut self, snapshot: &Arc<Snapshot>) -> ControlFlow<()> {
        self.running.retain(|output| output.mailbox.put(Arc::clone(snapshot)));
        if self.running.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Completes when no output is left, so that the end of the last one need not wait for the next tick. Cancel safe.
    pub async fn ended(&self) {
        for output in &self.running {
            output.mailbox.closed().await;
        }
    }

    /// Lets every output finish what it was handed, for at most `deadline` together; what is not out by then is counted
    /// as dropped.
    pub async fn shutdown(self, deadline: Duration) {
        let until = Instant::now() + deadline;
        let closing: Vec<_> = self
            .running
            .into_iter()
            .map(|Output { mailbox, finished, task, statistics }| {
                drop(mailbox);
                (finished, task, statistics)
            })
            .collect();
        for (finished, task, statistics) in closing {
            if tokio::time::timeout_at(until, finished).await.is_err() {
                if let Some(task) = task {
                    task.abort();
                }
                statistics.dropped();
                let output = statistics.output();
                tracing::warn!(output, "the last snapshot did not get out within {deadline:?} and is lost");
            }
        }
    }
}
