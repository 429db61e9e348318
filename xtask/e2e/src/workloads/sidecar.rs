//! The sidecar on this host, next to an engine, and its output.

use std::{
    cell::{Ref, RefCell},
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;
use xtask_common::process;
use xtask_e2e::collector::{otlp::Request, running::Collector};

use crate::engines::Cgroups;

/// Timeout for loading all programs on a busy machine.
const START: Duration = Duration::from_secs(30);
/// Timeout for delivering the last snapshot.
const STOP: Duration = Duration::from_secs(20);
/// Timeout for a snapshot: many intervals.
pub const SNAPSHOT: Duration = Duration::from_secs(60);
/// Part of the log line after all programs are attached.
const READY: &str = " signals: ";

/// A sidecar with an interval of one second. It ends on drop.
pub struct Sidecar {
    child: Child,
    folder: TempDir,
    requests: RefCell<Requests>,
}

impl Sidecar {
    /// Starts a sidecar that sees these cgroups, queries only the engine behind this socket, and writes to a file and the collector.
    /// `options` are further arguments.
    pub fn start(
        binary: &Path,
        cgroups: Cgroups,
        socket: &Path,
        collector: &Collector,
        options: &[&str],
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a folder for the sidecar")?;
        let log = File::create(folder.path().join("log")).context("cannot write the sidecar's log")?;
        let config = folder.path().join("config.yaml");
        fs::write(&config, format!("workloads: {{sockets: [{}]}}", socket.display()))
            .context("cannot write the sidecar's settings")?;
        let child = Command::new("unshare")
            .args(["--mount", "sh", "-euc"])
            .arg([cgroups.script(), r#"exec "$@""#].concat())
            .arg("sh")
            .arg(binary)
            .args(["run", "--interval", "1s", "--output", "otlp", "--sampling", "all", "--config"])
            .arg(config)
            .arg("--output")
            .arg(format!("json={}", lines(&folder).display()))
            .args(options)
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start the sidecar")?;
        let mut sidecar = Self { child, folder, requests: RefCell::default() };
        sidecar.wait_until_ready()?;
        Ok(sidecar)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let ready = process::wait_for("the start of the sidecar", START, || {
            if let Some(status) = self.child.try_wait()? {
                bail!("the sidecar exited ({status})");
            }
            Ok(self.log().contains(READY).then_some(()))
        });
        ready.with_context(|| format!("the sidecar logged:\n{}", self.log()))
    }

    /// Returns the log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns all requests written so far.
    pub fn requests(&self) -> anyhow::Result<Ref<'_, [Request]>> {
        self.requests.borrow_mut().read(&lines(&self.folder))?;
        Ok(Ref::map(self.requests.borrow(), |requests| requests.all.as_slice()))
    }

    /// Waits for a snapshot taken after this call.
    pub fn snapshot(&self) -> anyhow::Result<Request> {
        let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
        self.wait_for("a snapshot", |requests| {
            requests.last().filter(|request| request.time().is_some_and(|time| time > now)).cloned()
        })
    }

    /// Waits until a condition on the written requests returns a value.
    pub fn wait_for<T>(&self, event: &str, mut condition: impl FnMut(&[Request]) -> Option<T>) -> anyhow::Result<T> {
        process::wait_for(event, SNAPSHOT, || Ok(condition(&self.requests()?)))
            .with_context(|| format!("the sidecar logged:\n{}", self.log()))
    }

    /// Ends the sidecar and returns all requests that it wrote.
    pub fn stop(mut self) -> anyhow::Result<Vec<Request>> {
        let status = process::end(&mut self.child, STOP)?;
        ensure!(status.success(), "the sidecar ended with {status}:\n{}", self.log());
        Ok(self.requests()?.to_vec())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if let Err(error) = process::end(&mut self.child, STOP) {
            eprintln!("the sidecar did not exit: {error:#}");
        }
    }
}

fn lines(folder: &TempDir) -> PathBuf {
    folder.path().join("lines")
}

/// Requests read so far. Each line is parsed once.
#[derive(Default)]
struct Requests {
    all: Vec<Request>,
    position: u64,
}

impl Requests {
    fn read(&mut self, file: &Path) -> anyhow::Result<()> {
        let mut text = String::new();
        let mut open = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        open.seek(SeekFrom::Start(self.position))?;
        open.read_to_string(&mut text)?;
        // The sidecar may still be writing the part after the last newline.
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        // Slow packets of other processes have lines with spans.
        let metrics = |line: &&str| !line.starts_with(r#"{"resourceSpans""#);
        for line in text[..complete].lines().filter(metrics) {
            self.all.push(Request::parse(line)?);
        }
        self.position += complete as u64;
        Ok(())
    }
}
