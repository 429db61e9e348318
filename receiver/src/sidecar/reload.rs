//! Reads the configuration file again at SIGHUP.

use std::{fs::File as Opened, path::Path};

use tokio::sync::mpsc;

use crate::{
    causes::chain,
    config::{File, Run, SIZE_LIMIT, Settings, changed},
    environment,
    files::read_limited,
    options::Interval,
    reader::Foreign,
};

/// The settings that change while the sidecar runs.
const LIVE: [&str; 1] = ["interval"];

/// Reads the configuration file in the background, because its file system can be slow.
pub(super) struct Reload {
    run: Run,
    reader: Foreign,
    sender: mpsc::Sender<Result<Settings, String>>,
    receiver: mpsc::Receiver<Result<Settings, String>>,
}

impl Reload {
    /// Prepares to read the file of a run. The worker may not open it, so the reader does.
    pub(super) fn new(run: Run, reader: Foreign) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        Self { run, reader, sender, receiver }
    }

    /// Returns the path of the file, if there is one.
    pub(super) fn file(&self) -> Option<&Path> {
        self.run.config.as_deref()
    }

    /// Starts to read the file. Requires a tokio runtime.
    pub(super) fn begin(&self) {
        let Some(path) = self.run.config.clone() else { return };
        let (run, reader, sender) = (self.run.clone(), self.reader.clone(), self.sender.clone());
        tokio::spawn(async move {
            let read = async {
                let opened = reader.open_or_connect(path.clone()).await.map(Opened::from);
                let content = opened.and_then(|file| read_limited(file, SIZE_LIMIT));
                let content = content.map_err(|error| format!("{}: {error}", path.display()))?;
                let file = File::parse(&path, &content).map_err(|error| chain(&error))?;
                Ok(Settings::resolve(run.flags, &environment::process, file).0)
            };
            // An earlier outcome that nobody received is of the same file.
            let _ = sender.try_send(read.await);
        });
    }

    /// Waits until the file is read, and compares it with the current settings. Returns the new interval if it changed. Logs
    /// an invalid file, and the changes that need a restart. Cancel safe.
    pub(super) async fn finished(&mut self, current: &mut Settings) -> Option<Interval> {
        // The sender is never dropped.
        let outcome = self.receiver.recv().await?;
        match outcome {
            Ok(new) => apply(current, new),
            Err(problem) => {
                tracing::error!("cannot reload the configuration, which stays as it was: {problem}");
                None
            }
        }
    }
}

/// Applies the live settings, and logs the other changes.
fn apply(current: &mut Settings, new: Settings) -> Option<Interval> {
    let (live, others): (Vec<String>, Vec<String>) =
        changed(current, &new).into_iter().partition(|key| LIVE.contains(&key.as_str()));
    if live.is_empty() && others.is_empty() {
        tracing::info!("reloaded the configuration: nothing changed");
        return None;
    }
    if !live.is_empty() {
        tracing::info!("reloaded the configuration: changed {}", live.join(", "));
    }
    if !others.is_empty() {
        tracing::warn!("reloaded the configuration: restart the sidecar to apply {}", others.join(", "));
    }
    let interval = (current.interval != new.interval).then_some(new.interval);
    current.interval = new.interval;
    interval
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Flags;

    fn settings(text: &str) -> Settings {
        let file = File::parse("config.yaml".as_ref(), text.as_bytes()).expect("a configuration");
        Settings::resolve(Flags::default(), &|_| None, file).0
    }

    #[test]
    fn only_live_settings_are_applied() {
        let mut current = settings("interval: 5s\n");
        let new = settings("interval: 7s\nmemory_limit: 100MB\n");
        let limit = current.memory_limit;
        assert_eq!(apply(&mut current, new).map(Interval::get), Some(std::time::Duration::from_secs(7)));
        assert_eq!((current.interval.get().as_secs(), current.memory_limit), (7, limit));
        assert_eq!(apply(&mut current, settings("interval: 7s\n")), None);
    }
}
