//! The sidecar's process under the load of a server.

use std::{
    fmt, fs,
    io::{BufRead as _, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use procfs::process::Process;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use xtask_common::{machine, process};

use crate::{ATTACHED, cpu::cpu_time};

/// Timeout for the exit in a guest.
const PATIENCE: Duration = Duration::from_secs(20);

/// A configuration of the sidecar.
#[derive(Clone, Serialize, Deserialize)]
pub struct Configuration {
    /// A description for the report.
    pub name: String,
    /// The level of detail.
    pub level: String,
    /// The enabled signals; all if absent.
    pub signals: Option<Vec<String>>,
    /// Settings of signals by name.
    pub settings: Map<String, Value>,
    /// True to sample packets adaptively instead of measuring every packet.
    pub samples: bool,
}

impl Configuration {
    /// Returns the content of a configuration file for this binary.
    pub fn render(&self, binary: &Path) -> anyhow::Result<String> {
        let schema = machine::output(Command::new(binary).args(["config", "schema"]))?;
        let schema: Value = serde_json::from_str(&schema).context("the sidecar's schema is not JSON")?;
        let known = schema["properties"]["signals"]["properties"].as_object().context("the schema has no signals")?;
        let is_off = |name: &&String| self.signals.as_ref().is_some_and(|signals| !signals.contains(name));
        let mut signals: Map<String, Value> =
            known.keys().filter(is_off).map(|name| (name.clone(), json!({ "enabled": false }))).collect();
        signals.extend(self.settings.clone());
        let sampling = if self.samples { "adaptive" } else { "all" };
        // JSON is a subset of YAML.
        Ok(json!({ "level": self.level, "signals": signals, "packets": { "sampling": sampling } }).to_string())
    }
}

/// The program that runs next to the server, by path.
pub enum Observer {
    /// The sidecar, which writes to a file every ten seconds.
    Sidecar(PathBuf),
    /// Empty programs on the sidecar's hooks.
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

/// A running observer. It ends on drop.
pub struct Sidecar {
    child: Child,
    /// Kept open: the sidecar continues to log. The pipe does not fill up during a run.
    _log: Lines<BufReader<ChildStderr>>,
    _folder: TempDir,
}

impl Sidecar {
    /// Starts an observer and waits until its programs are attached.
    pub fn start(observer: &Observer, configuration: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a folder for the sidecar's output")?;
        let file = folder.path().join("undercurrent.yaml");
        fs::write(&file, configuration)?;
        let mut command = observer.command(&file, folder.path());
        command.env("OTEL_LOG_LEVEL", "info").env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().context("cannot start the sidecar")?;
        let mut log = BufReader::new(child.stderr.take().context("the sidecar has no standard error")?).lines();
        let is_attached = log.by_ref().map_while(Result::ok).any(|line| line.contains(ATTACHED));
        let sidecar = Self { child, _log: log, _folder: folder };
        if !is_attached {
            bail!("the sidecar exited before its programs were attached: run `undercurrent doctor`");
        }
        Ok(sidecar)
    }

    /// Runs `work` and returns the CPU time of the process meanwhile, as a share of one CPU. The time of the BPF programs is not included.
    pub fn share_during<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, f64)> {
        let process = Process::new(i32::try_from(self.child.id())?)?;
        let (begun, before) = (Instant::now(), cpu_time(&process)?);
        let result = work()?;
        let taken = cpu_time(&process)?.saturating_sub(before);
        Ok((result, taken.as_secs_f64() / begun.elapsed().as_secs_f64()))
    }

    /// Ends the observer.
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
