//! The daemon of an engine, in separate namespaces and a separate cgroup.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;
use xtask_common::process;

use super::cgroup::{Cgroups, Group};

/// Timeout for the start of a daemon on a busy machine.
const START: Duration = Duration::from_secs(60);
/// Timeout for the end of a daemon. Longer than a daemon waits for its containers.
const STOP: Duration = Duration::from_secs(40);

/// Prepares the environment of a daemon. `$1` is the daemon's folder, `$2` its socket, `$3` the name of its cgroup, `$4` the mount point
/// of cgroup v2.
///
/// A network namespace isolates bridges, addresses and firewall rules from the host. A mount namespace isolates mounts and those
/// files that engines always write to /run and /dev/shm. On hybrid hosts an engine would use cgroup v1, so for v2 the mount namespace
/// contains only v2. Engine and containers have separate groups, because a v2 group that delegates controllers cannot have processes.
const PREPARE: &str = r#"
mkdir "$4/$3/engine"
echo $$ > "$4/$3/engine/cgroup.procs"
ip link set lo up
for folder in /run /dev/shm; do mount -t tmpfs none "$folder"; done
"#;

/// The folder of a daemon's state and settings.
pub struct Folder {
    name: &'static str,
    folder: TempDir,
}

impl Folder {
    /// Creates the folder of an engine.
    pub fn create(name: &'static str) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("undercurrent-{name}-")).tempdir();
        Ok(Self { name, folder: folder.with_context(|| format!("cannot create a folder for {name}"))? })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of the engine's socket. The sidecar derives the protocol from the file name.
    pub fn socket(&self) -> PathBuf {
        self.path().join(format!("{}.sock", self.name))
    }

    /// Writes a settings file.
    pub fn settings(&self, file: &str, text: &str) -> anyhow::Result<()> {
        fs::write(self.path().join(file), text).with_context(|| format!("cannot write the settings of {}", self.name))
    }
}

/// A running daemon. On drop, the daemon and all its descendants end.
pub struct Daemon {
    child: Child,
    group: Group,
    folder: Folder,
}

impl Daemon {
    /// Starts a daemon with a script. The script must `exec` the daemon.
    pub fn start(folder: Folder, cgroups: Cgroups, script: &str) -> anyhow::Result<Self> {
        let log = File::create(folder.path().join("log")).context("cannot write the engine's log")?;
        let group = Group::create(&format!("undercurrent-e2e-{}", std::process::id()))?;
        // The engine receives the signal if this process dies before its cleanup.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "unshare", "--mount", "--net", "sh", "-euc"])
            .arg([cgroups.script(), PREPARE, script].concat())
            .arg("sh")
            .args([folder.path(), &folder.socket()])
            .arg(group.name())
            .arg(cgroups.v2()?)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", folder.name))?;
        Ok(Self { child, group, folder })
    }

    /// Waits until a command of the client succeeds.
    pub fn wait_until_ready(&mut self, mut probe: Command) -> anyhow::Result<()> {
        let name = self.name();
        let ready = process::wait_for(&format!("{name} to start"), START, || {
            if let Some(status) = self.child.try_wait()? {
                bail!("{name} exited ({status})");
            }
            Ok(probe.output()?.status.success().then_some(()))
        });
        ready.with_context(|| format!("its log:\n{}", self.log()))
    }

    /// Returns the engine's name.
    pub fn name(&self) -> &'static str {
        self.folder.name
    }

    /// Returns the folder of the daemon's state.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the path of the daemon's cgroup, relative to the root of the hierarchy.
    pub fn group(&self) -> &str {
        self.group.name()
    }

    /// Returns a call of a program in the daemon's namespaces.
    pub fn inside(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.child.id().to_string(), "--mount", "--net"]);
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Ends the daemon. Returns an error if files or cgroups remain.
    pub fn stop(mut self) -> anyhow::Result<()> {
        process::end(&mut self.child, STOP)?;
        self.group.remove()?;
        let folder = self.folder.path().to_owned();
        drop(self);
        ensure!(!folder.exists(), "cannot remove {}", folder.display());
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = process::end(&mut self.child, STOP) {
            eprintln!("{} did not exit: {error:#}", self.name());
        }
        // The fields are dropped next: the cgroup kills remaining processes before the folder is removed.
    }
}
