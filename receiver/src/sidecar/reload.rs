//! Reads the configuration file again at SIGHUP.

use std::{fs::File as Opened, path::Path};

use tokio::sync::mpsc;

use super::Sidecar;
use crate::{
    causes::chain,
    config::{File, Otlp, Run, SIZE_LIMIT, Settings, changed},
    environment,
    files::read_limited,
    outputs::RunningCollectors,
    reader::Foreign,
};

/// The settings that change while the sidecar runs, each with its keys or the keys below it. docs/configuration.md lists them.
const LIVE: [(Live, &[&str]); 4] = [
    (Live::Interval, &["interval"]),
    (Live::Collectors, &["otlp.endpoint", "otlp.protocol", "otlp.headers", "otlp.compression", "otlp.timeout"]),
    (Live::Filter, &["packets.filter"]),
    (Live::Addresses, &["signals.slow_packets.addresses"]),
];

/// A part of the settings that changes as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Live {
    Interval,
    Collectors,
    Filter,
    Addresses,
}

impl Live {
    /// Returns the part of a key; `None` if the key needs a restart.
    fn of_key(key: &str) -> Option<Self> {
        let contains =
            |above: &&str| key.strip_prefix(*above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        LIVE.into_iter().find(|(_, keys)| keys.iter().any(&contains)).map(|(live, _)| live)
    }
}

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

    /// Waits until the file is read. Returns the settings, or the reason why the file is invalid. Cancel safe.
    pub(super) async fn loaded(&mut self) -> Result<Settings, String> {
        match self.receiver.recv().await {
            Some(loaded) => loaded,
            // The sender is never dropped.
            None => std::future::pending().await,
        }
    }
}

impl Sidecar {
    /// Applies the settings that change while the sidecar runs. Logs an invalid file, each part that stays with the reason, and the changes
    /// that need a restart.
    pub(super) fn reload(
        &mut self,
        loaded: Result<Settings, String>,
        current: &mut Settings,
        mut collectors: Option<&mut RunningCollectors>,
    ) {
        let new = match loaded {
            Ok(new) => new,
            Err(problem) => {
                return tracing::error!("cannot reload the configuration, which stays as it was: {problem}");
            }
        };
        let keys = changed(current, &new);
        if keys.is_empty() {
            return tracing::info!("reloaded the configuration: nothing changed");
        }
        for (live, _) in LIVE {
            let keys =
                keys.iter().filter(|key| Live::of_key(key) == Some(live)).cloned().collect::<Vec<_>>().join(", ");
            if keys.is_empty() {
                continue;
            }
            match self.change(live, &new, collectors.as_deref_mut()) {
                Ok(()) => {
                    copy(live, current, &new);
                    tracing::info!("reloaded the configuration: changed {keys}");
                }
                Err(problem) => tracing::error!("cannot change {keys}, so the old setting stays: {problem}"),
            }
        }
        let others: Vec<&str> = keys.iter().filter(|key| Live::of_key(key).is_none()).map(String::as_str).collect();
        if !others.is_empty() {
            tracing::warn!("reloaded the configuration: restart the sidecar to apply {}", others.join(", "));
        }
    }

    /// Changes a part of the running sidecar.
    ///
    /// # Errors
    /// The reason why it stays as it is.
    fn change(&mut self, live: Live, new: &Settings, collectors: Option<&mut RunningCollectors>) -> Result<(), String> {
        match live {
            Live::Interval => Ok(()),
            Live::Collectors => match collectors {
                Some(collectors) => collectors.change(&new.otlp, &environment::process).map_err(|error| chain(&error)),
                None => Err("OTLP is no output: restart the sidecar".to_owned()),
            },
            Live::Filter => {
                let workloads = new.workloads.limit;
                self.filter_updater.change(new.packets.filter.clone(), workloads, &self.workloads)
            }
            Live::Addresses => {
                self.signals.iter_mut().for_each(|(_, signal)| signal.reconfigure(&new.signals));
                Ok(())
            }
        }
    }
}

/// Copies a part of the settings.
fn copy(live: Live, current: &mut Settings, new: &Settings) {
    match live {
        Live::Interval => current.interval = new.interval,
        Live::Collectors => current.otlp = Otlp { logs: current.otlp.logs, ..new.otlp.clone() },
        Live::Filter => current.packets.filter = new.packets.filter.clone(),
        Live::Addresses => current.signals.slow_packets.addresses = new.signals.slow_packets.addresses,
    }
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
    fn each_live_part_is_copied_alone() {
        let new = settings(
            "{interval: 7s, memory_limit: 100MB, otlp: {endpoint: 'http://c:1', headers: {a: b}, logs: false}, packets: {filter: {ports: \
             [80]}}, signals: {slow_packets: {addresses: none, budget: 7}}}",
        );
        for (live, keys) in LIVE {
            let (mut current, before) = (settings("{}"), settings("{}"));
            copy(live, &mut current, &new);
            let copied = changed(&before, &current);
            assert!(
                !copied.is_empty() && copied.iter().all(|key| Live::of_key(key) == Some(live)),
                "{keys:?}: {copied:?}"
            );
            let left = changed(&current, &new);
            assert!(left.iter().all(|key| Live::of_key(key) != Some(live)), "{keys:?}: {left:?}");
        }
    }

    #[test]
    fn other_keys_need_a_restart() {
        for key in ["memory_limit", "otlp.logs", "packets.filters", "signals.slow_packets.enabled", "outputs"] {
            assert_eq!(Live::of_key(key), None, "{key}");
        }
    }
}
