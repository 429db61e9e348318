//! Docker Engine.

use std::{path::Path, process::Command};

use xtask_common::packages;

use super::{Cgroups, Client, Daemon, daemon::Folder};

/// Name of the engine.
pub const NAME: &str = "docker";
/// A full path: `PATH` may contain another client first.
const CLIENT: &str = "/usr/bin/docker";
const COMPOSE: &str = "/usr/bin/docker-compose";
/// Starts the daemon.
const DAEMON: &str = r#"
exec dockerd --config-file "$1/daemon.json" --data-root "$1/data" --exec-root "$1/exec" --pidfile "$1/pid" \
    --host "unix://$2" --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "/$3"
"#;

/// A running engine.
pub struct Docker {
    daemon: Daemon,
}

impl Docker {
    /// Starts Docker and waits until it is ready. Installs Docker if it is missing.
    pub fn start(cgroups: Cgroups) -> anyhow::Result<Self> {
        packages::install(&["docker.io", "docker-compose", "iproute2", "iptables", "util-linux"])?;
        if !Path::new(CLIENT).is_file() {
            // In Debian 13 the client is a separate package.
            packages::install(&["docker-cli"])?;
        }
        let folder = Folder::create(NAME)?;
        // Ignore the host's daemon settings, and the user's registries and credential helpers.
        folder.settings("daemon.json", "{}")?;
        let mut engine = Self { daemon: Daemon::start(folder, cgroups, DAEMON)? };
        let mut version = engine.client();
        version.arg("version");
        engine.daemon.wait_until_ready(version)?;
        Ok(engine)
    }

    /// Returns a call of `docker-compose` for this engine.
    pub fn compose(&self) -> Command {
        self.call_of(COMPOSE)
    }

    fn call_of(&self, program: &str) -> Command {
        let folder = self.daemon.folder();
        let mut command = Command::new(program);
        command
            .env("DOCKER_HOST", format!("unix://{}", folder.socket().display()))
            .env("DOCKER_CONFIG", folder.path())
            // Otherwise Compose 1.29 calls the first `docker` in PATH.
            .env("COMPOSE_DOCKER_CLI_BUILD", "0")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }
}

impl Client for Docker {
    const PARENT: &'static str = "docker";
    const PREFIX: &'static str = "";

    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn client(&self) -> Command {
        self.call_of(CLIENT)
    }

    fn end(self) -> anyhow::Result<()> {
        self.daemon.stop()
    }
}
