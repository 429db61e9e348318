//! A server of a test: a process with a folder and a log.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use xtask_common::process;

/// Timeout for the start on a busy machine.
const START: Duration = Duration::from_secs(30);
/// Timeout for the flush and the exit.
const STOP: Duration = Duration::from_secs(15);

/// A part of the log of a collector, and of Jaeger, which is one, when it is ready.
pub const READY: &str = "Everything is ready";

/// A running server. It ends on drop.
pub struct Server {
    name: &'static str,
    child: Child,
    folder: TempDir,
}

/// Creates the folder of a server.
pub fn folder() -> anyhow::Result<TempDir> {
    tempfile::tempdir().context("cannot create a folder for a server")
}

impl Server {
    /// Starts a server in its folder, and waits until it is ready. `arguments` completes the command; `ready` receives the log.
    pub fn start(
        name: &'static str,
        binary: &Path,
        folder: TempDir,
        arguments: impl FnOnce(&mut Command) -> &mut Command,
        ready: impl Fn(&str) -> bool,
    ) -> anyhow::Result<Self> {
        let log = File::create(folder.path().join("log")).with_context(|| format!("cannot write the log of {name}"))?;
        let mut command = Command::new(binary);
        arguments(&mut command);
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
        let mut server = Self { name, child, folder };
        process::wait_for(&format!("{name} to start"), process::patience(START), || {
            if let Some(status) = server.child.try_wait()? {
                bail!("{name} did not start ({status}):\n{}", server.log());
            }
            Ok(ready(&server.log()).then_some(()))
        })?;
        Ok(server)
    }

    /// Returns the folder, which has the log and the server's files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// Ends the server.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        process::end(&mut self.child, process::patience(STOP)).map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("{} did not exit: {error:#}", self.name);
        }
    }
}
