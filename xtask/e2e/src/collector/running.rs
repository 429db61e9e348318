//! A collector on loopback that writes received requests to a file.

use std::{
    fs::{self, File},
    io::Write as _,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use xtask_common::process;

use super::otlp::Request;

/// Timeout for the start of a collector on a busy machine.
const START: Duration = Duration::from_secs(30);
/// Timeout for its flush and exit.
const STOP: Duration = Duration::from_secs(15);

/// A collector that receives OTLP on loopback and writes one line per request. It ends on drop.
///
/// The pipeline has no batch processor, so a line is exactly one request of the sender.
pub struct Collector {
    child: Child,
    folder: TempDir,
    address: SocketAddr,
}

impl Collector {
    /// Starts a collector on a free port and waits until it is ready.
    pub fn start() -> anyhow::Result<Self> {
        let binary = super::path()?;
        // Another process may bind the chosen port first.
        let mut refusals = 0;
        loop {
            match Self::try_start(&binary) {
                Err(error) if refusals < 2 && format!("{error:#}").contains("address already in use") => refusals += 1,
                result => return result,
            }
        }
    }

    fn try_start(binary: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a folder for the collector")?;
        let address = free_address()?;
        let config = folder.path().join("config.yaml");
        let file = folder.path().join("metrics.jsonl");
        File::create(&config)
            .and_then(|mut writer| writer.write_all(settings(address, &file).as_bytes()))
            .with_context(|| format!("cannot write {}", config.display()))?;
        let log = File::create(folder.path().join("log")).context("cannot write the collector's log")?;
        let child = Command::new(binary)
            .arg("--config")
            .arg(&config)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let mut collector = Self { child, folder, address };
        collector.wait_until_ready()?;
        Ok(collector)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        process::wait_for("the collector to start", START, || {
            if let Some(status) = self.child.try_wait()? {
                bail!("the collector did not start ({status}):\n{}", self.log());
            }
            Ok(self.log().contains("Everything is ready").then_some(()))
        })
    }

    /// Returns the endpoint for OTLP over gRPC, in the format of `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests written so far.
    pub fn requests(&self) -> anyhow::Result<Vec<Request>> {
        Request::read_all(&self.folder.path().join("metrics.jsonl"))
    }

    /// Returns the log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Ends the collector and returns all requests that it received.
    pub fn stop(mut self) -> anyhow::Result<Vec<Request>> {
        process::end(&mut self.child, STOP)?;
        self.requests()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // The requests are not used, so an error has no effect.
        let _ = process::end(&mut self.child, STOP);
    }
}

/// Returns a free address on loopback. Another process may bind it at any time.
fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    Ok(listener.local_addr()?)
}

fn settings(address: SocketAddr, file: &Path) -> String {
    let file = file.display();
    format!(
        "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{address}'}}}}}}}}\n\
         exporters: {{file: {{path: '{file}', flush_interval: 50ms}}}}\n\
         service:\n  \
           telemetry: {{metrics: {{level: none}}}}\n  \
           pipelines: {{metrics: {{receivers: [otlp], exporters: [file]}}}}\n"
    )
}
