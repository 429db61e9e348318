//! A Docker engine in namespaces of its own.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use super::cgroup::{Cgroups, Group};
use crate::{machine, process};

/// By full path: another client may come first on the path.
const CLIENT: &str = "/usr/bin/docker";
const COMPOSE: &str = "/usr/bin/docker-compose";
/// Longer than an engine takes to start on a busy machine.
const START: Duration = Duration::from_secs(60);
/// Longer than the engine gives its containers.
const STOP: Duration = Duration::from_secs(40);

/// Starts the daemon, which finds: its folder, its cgroup's name, and where version 2 of cgroups is mounted.
///
/// A network namespace keeps its bridges, addresses and firewall rules off the host. On hybrid hosts the engine would
/// use cgroup v1, so for v2 it gets a mount namespace where that is all there is. Engine and containers stand in
/// separate groups, because a v2 group that delegates controllers may hold no processes. Where it uses v1, its
/// containers stay in the engine's own group of v2, as they do on hosts of that kind.
const DAEMON: &str = r#"
mkdir "$3/$2/engine" "$3/$2/containers"
echo $$ > "$3/$2/engine/cgroup.procs"
ip link set lo up
exec dockerd --config-file "$1/daemon.json" --data-root "$1/data" --exec-root "$1/exec" --pidfile "$1/pid" \
    --host "unix://$1/socket" --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "/$2/containers"
"#;

/// A running engine. It ends with the value, and with it its containers, its images and its networks.
pub struct Engine {
    daemon: Child,
    cgroups: Cgroups,
    group: Group,
    folder: TempDir,
}

impl Engine {
    /// Starts one with these cgroups, and waits until it answers. Installs Docker where it is missing.
    pub fn start(cgroups: Cgroups) -> anyhow::Result<Self> {
        machine::install(&["docker.io", "docker-compose", "iproute2", "iptables", "util-linux"])?;
        if !Path::new(CLIENT).is_file() {
            // Debian 13 keeps the client apart.
            machine::install(&["docker-cli"])?;
        }
        let folder = tempfile::Builder::new().prefix("undercurrent-docker-").tempdir()?;
        // Neither the host's daemon settings nor the user's registries and credential helpers.
        fs::write(folder.path().join("daemon.json"), "{}").context("cannot write the engine's settings")?;
        let log = File::create(folder.path().join("log")).context("cannot write the engine's log")?;
        let group = Group::create(&format!("undercurrent-e2e-{}", std::process::id()))?;
        // The signal reaches the engine if this process is ended before it can clean up.
        let daemon = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "unshare", "--mount", "--net", "sh", "-euc"])
            .arg([cgroups.script(), DAEMON].concat())
            .arg("sh")
            .arg(folder.path())
            .arg(group.name())
            .arg(cgroups.v2()?)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the engine")?;
        let mut engine = Self { daemon, cgroups, group, folder };
        engine.wait_until_ready()?;
        Ok(engine)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let ready = process::wait_for("the Docker engine to start", START, || {
            if let Some(status) = self.daemon.try_wait()? {
                bail!("the Docker engine ended ({status})");
            }
            Ok(self.docker().arg("version").output()?.status.success().then_some(()))
        });
        ready.with_context(|| format!("the engine logged:\n{}", self.log()))
    }

    /// Where it answers, as `DOCKER_HOST` has it.
    pub fn address(&self) -> String {
        format!("unix://{}/socket", self.folder.path().display())
    }

    /// A call of `docker` at this engine.
    pub fn docker(&self) -> Command {
        self.client(CLIENT)
    }

    /// A call of `docker-compose` at this engine.
    pub fn compose(&self) -> Command {
        self.client(COMPOSE)
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("DOCKER_HOST", self.address())
            .env("DOCKER_CONFIG", self.folder.path())
            // Compose 1.29 would call whichever `docker` comes first on the path.
            .env("COMPOSE_DOCKER_CLI_BUILD", "0")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Seconds of CPU time that a container has used, by its cgroup.
    pub fn cpu_time(&self, id: &str) -> anyhow::Result<f64> {
        self.group.cpu_time(self.cgroups, &format!("containers/{id}"))
    }

    /// What the daemon logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Ends it, and says when something of it stays behind.
    pub fn stop(mut self) -> anyhow::Result<()> {
        process::end(&mut self.daemon, STOP)?;
        self.group.remove()?;
        let folder = self.folder.path().to_owned();
        drop(self);
        anyhow::ensure!(!folder.exists(), "{} could not be removed", folder.display());
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(error) = process::end(&mut self.daemon, STOP) {
            eprintln!("the Docker engine did not end: {error:#}");
        }
        // The fields follow: first whatever the engine left running, then its folder.
    }
}
