//! The daemon of an engine, in namespaces and a cgroup of its own.

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

/// Longer than a daemon takes to start on a busy machine.
const START: Duration = Duration::from_secs(60);
/// Longer than a daemon gives its containers.
const STOP: Duration = Duration::from_secs(40);

/// Prepares what a daemon finds: `$1` is its folder, `$2` where it listens, `$3` its cgroup's name, `$4` where version 2 of
/// cgroups is mounted.
///
/// A network namespace keeps its bridges, addresses and firewall rules off the host, and a mount namespace its mounts and
/// whatever engines write to these folders, wherever they are told to keep their state. On hybrid hosts an engine would
/// use cgroup v1, so for v2 it gets a mount namespace where that is all there is. Engine and containers stand in separate
/// groups, because a v2 group that delegates controllers may hold no processes.
const PREPARE: &str = r#"
mkdir "$4/$3/engine"
echo $$ > "$4/$3/engine/cgroup.procs"
ip link set lo up
for folder in /run /dev/shm; do mount -t tmpfs none "$folder"; done
"#;

/// Where a daemon keeps its state, and what it is told before it starts.
pub struct Folder {
    name: &'static str,
    folder: TempDir,
}

impl Folder {
    /// Makes one for an engine of this name.
    pub fn create(name: &'static str) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("undercurrent-{name}-")).tempdir();
        Ok(Self { name, folder: folder.with_context(|| format!("cannot make a folder for {name}"))? })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where the engine answers: the sidecar knows by the file's name what it speaks.
    pub fn socket(&self) -> PathBuf {
        self.path().join(format!("{}.sock", self.name))
    }

    /// Writes a file of settings.
    pub fn settings(&self, file: &str, text: &str) -> anyhow::Result<()> {
        fs::write(self.path().join(file), text).with_context(|| format!("cannot write the settings of {}", self.name))
    }
}

/// A running daemon. It ends with the value, and with it everything that it started.
pub struct Daemon {
    child: Child,
    group: Group,
    folder: Folder,
}

impl Daemon {
    /// Starts one with these cgroups by a script, which replaces itself with it.
    pub fn start(folder: Folder, cgroups: Cgroups, script: &str) -> anyhow::Result<Self> {
        let log = File::create(folder.path().join("log")).context("cannot write the engine's log")?;
        let group = Group::create(&format!("undercurrent-e2e-{}", std::process::id()))?;
        // The signal reaches the engine if this process is ended before it can clean up.
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

    /// Waits until it answers a question of its client's.
    pub fn wait_until_it_answers(&mut self, mut question: Command) -> anyhow::Result<()> {
        let name = self.name();
        let ready = process::wait_for(&format!("{name} to start"), START, || {
            if let Some(status) = self.child.try_wait()? {
                bail!("{name} ended ({status})");
            }
            Ok(question.output()?.status.success().then_some(()))
        });
        ready.with_context(|| format!("it logged:\n{}", self.log()))
    }

    /// The engine's name.
    pub fn name(&self) -> &'static str {
        self.folder.name
    }

    /// Where it keeps its state.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The name of its cgroup, from the root of the hierarchies.
    pub fn group(&self) -> &str {
        self.group.name()
    }

    /// A call of a program in its namespaces.
    pub fn inside(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.child.id().to_string(), "--mount", "--net"]);
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Ends it, and says when something of it stays behind.
    pub fn stop(mut self) -> anyhow::Result<()> {
        process::end(&mut self.child, STOP)?;
        self.group.remove()?;
        let folder = self.folder.path().to_owned();
        drop(self);
        ensure!(!folder.exists(), "{} could not be removed", folder.display());
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = process::end(&mut self.child, STOP) {
            eprintln!("{} did not end: {error:#}", self.name());
        }
        // The fields follow: first whatever the engine left running, then its folder.
    }
}
