//! The sidecar, whole, while a server works.

use std::{
    fmt, fs,
    io::{BufRead as _, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use procfs::process::Process;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use xtask_common::{machine, process};

use crate::{LISTENING, cpu::cpu_time};

/// Longer than it takes to end in a guest.
const PATIENCE: Duration = Duration::from_secs(20);

/// A configuration that measures every packet, or as the default is; and all signals, or the layers of the receive path
/// alone.
pub fn configuration(binary: &Path, all: bool, layers: bool) -> anyhow::Result<String> {
    let schema = machine::output(Command::new(binary).args(["config", "schema"]))?;
    let schema: Value = serde_json::from_str(&schema).context("the sidecar's schema is no JSON")?;
    let signals = schema["properties"]["signals"]["properties"].as_object().context("the schema has no signals")?;
    let mut signals: Map<String, Value> =
        signals.keys().filter(|_| layers).map(|name| (name.clone(), json!({ "enabled": false }))).collect();
    signals.insert("latency".to_owned(), json!({ "sampling": if all { "all" } else { "adaptive" } }));
    // What is JSON is YAML too.
    Ok(json!({ "signals": signals }).to_string())
}

/// What runs while a server works, by its program's path.
pub enum Observer {
    /// The sidecar. It measures, and writes it into a file every ten seconds.
    Sidecar(PathBuf),
    /// Empty programs on the same hooks.
    Empty(PathBuf),
}

impl Observer {
    fn command(&self, configuration: &Path, folder: &Path) -> Command {
        match self {
            Self::Sidecar(binary) => {
                let mut command = Command::new(binary);
                command.args(["run", "--interval", "10s", "--config"]).arg(configuration);
                command.arg("--output").arg(format!("json={}", folder.join("lines").display()));
                command
            }
            Self::Empty(benchmark) => {
                let mut command = Command::new(benchmark);
                command.arg("--stand-in").arg(configuration);
                command
            }
        }
    }
}

impl fmt::Display for Observer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Sidecar(_) => "the sidecar",
            Self::Empty(_) => "empty programs on its hooks",
        })
    }
}

/// What runs, until it is stopped or the value goes.
pub struct Sidecar {
    child: Child,
    /// It goes on logging, into a pipe that it does not fill in so short a time.
    _log: Lines<BufReader<ChildStderr>>,
    _folder: TempDir,
}

impl Sidecar {
    /// Starts it by a configuration, and waits until it measures.
    pub fn start(observer: &Observer, configuration: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for the sidecar's output")?;
        let file = folder.path().join("undercurrent.yaml");
        fs::write(&file, configuration)?;
        let mut command = observer.command(&file, folder.path());
        command.env("OTEL_LOG_LEVEL", "info").env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().context("cannot start the sidecar")?;
        let mut log = BufReader::new(child.stderr.take().context("it has a pipe")?).lines();
        let listens = log.by_ref().map_while(Result::ok).any(|line| line.contains(LISTENING));
        let sidecar = Self { child, _log: log, _folder: folder };
        if !listens {
            bail!("the sidecar ended before it measured anything: `undercurrent doctor` says why");
        }
        Ok(sidecar)
    }

    /// Which share of one CPU's time its process takes while something is done. What its programs take is not in it.
    pub fn share_during<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, f64)> {
        let process = Process::new(i32::try_from(self.child.id())?)?;
        let (begun, before) = (Instant::now(), cpu_time(&process)?);
        let result = work()?;
        let taken = cpu_time(&process)?.saturating_sub(before);
        Ok((result, taken.as_secs_f64() / begun.elapsed().as_secs_f64()))
    }

    /// Ends it.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let status = process::end(&mut self.child, PATIENCE)?;
        if status.success() { Ok(()) } else { bail!("the sidecar failed: {status}") }
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = process::end(&mut self.child, PATIENCE);
    }
}
