//! The sidecar, whole, while a server works.

use std::{
    fs,
    io::{BufRead as _, BufReader, Lines},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use crate::{bench::LISTENING, process};

/// Longer than it takes to end in a guest.
const PATIENCE: Duration = Duration::from_secs(20);

/// A sidecar that measures all it can, and writes it into a file every ten seconds.
pub struct Sidecar {
    child: Child,
    /// It goes on logging, into a pipe that it does not fill in so short a time.
    _log: Lines<BufReader<ChildStderr>>,
    _folder: TempDir,
}

impl Sidecar {
    /// Starts it, and waits until it measures; every packet, or as its default is.
    pub fn start(binary: &Path, all: bool) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for the sidecar's output")?;
        let configuration = folder.path().join("undercurrent.yaml");
        let sampling = if all { "all" } else { "adaptive" };
        fs::write(&configuration, format!("signals: {{latency: {{sampling: {sampling}}}}}\n"))?;
        let mut command = Command::new(binary);
        command.args(["run", "--interval", "10s", "--config"]).arg(configuration);
        command.arg("--output").arg(format!("json={}", folder.path().join("lines").display()));
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
