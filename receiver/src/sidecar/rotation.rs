//! Opens the files of outputs again after another program moved or removed them.

use std::{fs::File, io, sync::Arc, time::Duration};

use tokio::{sync::Notify, task::AbortHandle};

use crate::{
    export::OutputFile,
    reader::{Foreign, Open},
};

/// A task that compares the files of outputs with their paths. The writer opens new files, because the worker may not.
pub(super) struct Rotation {
    now: Arc<Notify>,
    task: Option<AbortHandle>,
}

impl Rotation {
    /// Starts the task, which checks the files once in each period. Needs a tokio runtime.
    pub(super) fn start(files: Vec<OutputFile>, writer: Option<Foreign>, period: Duration) -> Self {
        let now = Arc::new(Notify::new());
        let writer = writer.filter(|_| !files.is_empty());
        let task = writer.map(|writer| tokio::spawn(run(files, writer, period, Arc::clone(&now))));
        Self { now, task: task.map(|task| task.abort_handle()) }
    }

    /// Returns true if an output has a file.
    pub(super) fn has_files(&self) -> bool {
        self.task.is_some()
    }

    /// Checks the files at once.
    pub(super) fn check(&self) {
        self.now.notify_one();
    }
}

impl Drop for Rotation {
    fn drop(&mut self) {
        self.task.iter().for_each(AbortHandle::abort);
    }
}

async fn run(files: Vec<OutputFile>, writer: Foreign, period: Duration, now: Arc<Notify>) {
    let mut fails = vec![false; files.len()];
    loop {
        // The end of the period and a notification have one effect.
        let _ = tokio::time::timeout(period, now.notified()).await;
        for (index, (file, fails)) in files.iter().zip(&mut fails).enumerate() {
            match reopen(index, file, &writer).await {
                Ok(()) => *fails = false,
                Err(error) if *fails => tracing::debug!("cannot open output file {index} again: {error}"),
                Err(error) => {
                    *fails = true;
                    tracing::warn!(
                        "cannot check whether output file {index} was moved: {error}; lines go to the open file"
                    );
                }
            }
        }
    }
}

/// Replaces a file if another file has its path.
async fn reopen(index: usize, file: &OutputFile, writer: &Foreign) -> io::Result<()> {
    let Some(identity) = file.identity() else { return Ok(()) };
    let (is_another, mut descriptors) = writer.call(Open { index, identity }).await?;
    if !is_another {
        return Ok(());
    }
    let new = descriptors.pop().map(File::from).ok_or(io::ErrorKind::InvalidData)?;
    tracing::debug!("output file {index} was moved or removed; continuing in a new file");
    file.replace(new)
}
