//! Docker Engine.

use std::{path::Path, process::Command};
use xtask_common::packages;

use super::{Cgroups, Client, Daemon, daemon::Folder};

/// Its name.
pub const NAME: &str = "docker";
/// By full path: another client may come first on the path.
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
    /// Starts one with these cgroups, and waits until it answers. Installs Docker where it is missing.
    pub fn start(cgroups: Cgroups) -> anyhow::Result<Self> {
        packages::install(&["docker.io", "docker-compose", "iproute2", "iptables", "util-linux"])?;
        if !Path::new(CLIENT).is_file() {
            // Debian 13 keeps the client apart.
            packages::install(&["docker-cli"])?;
        }
        let folder = Folder::create(NAME)?;
        // Neither the host's daemon settings nor the user's registries and credential helpers.
        folder.settings("daemon.json", "{}")?;
        let mut engine = Self { daemon: Daemon::start(folder, cgroups, DAEMON)? };
        let mut version = engine.client();
        version.arg("version");
        engine.daemon.wait_until_it_answers(version)?;
        Ok(engine)
    }

    /// A call of `docker-compose` at this engine.
    pub fn compose(&self) -> Command {
        self.call_of(COMPOSE)
    }

    fn call_of(&self, program: &str) -> Command {
        let folder = self.daemon.folder();
        let mut command = Command::new(program);
        command
            .env("DOCKER_HOST", format!("unix://{}", folder.socket().display()))
            .env("DOCKER_CONFIG", folder.path())
            // Compose 1.29 would call whichever `docker` comes first on the path.
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
