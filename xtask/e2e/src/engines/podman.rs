//! Podman.

use std::process::Command;
use xtask_common::packages;

use super::{Cgroups, Client, Daemon, daemon::Folder};

/// Its name.
pub const NAME: &str = "podman";
const CLIENT: &str = "/usr/bin/podman";

/// Starts the service that its clients and the sidecar speak to.
const DAEMON: &str = r#"
export CONTAINERS_CONF="$1/containers.conf"
exec podman --root "$1/root" --runroot "$1/run" --tmpdir "$1/tmp" --network-config-dir "$1/networks" \
    system service --time 0 "unix://$2"
"#;

/// Containers get neither limits that this host may not grant, nor any of a controller that version 2 of cgroups lacks
/// where version 1 has it. Of the programs that make containers runc alone serves hybrid hosts.
const SETTINGS: &str = r#"
[containers]
default_ulimits = []
pids_limit = 0
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"#;

/// A running engine.
pub struct Podman {
    daemon: Daemon,
}

impl Podman {
    /// Starts one with these cgroups, and waits until it answers. Installs Podman where it is missing.
    pub fn start(cgroups: Cgroups) -> anyhow::Result<Self> {
        packages::install(&["podman", "runc", "netavark", "iptables", "iproute2", "util-linux"])?;
        let folder = Folder::create(NAME)?;
        folder.settings("containers.conf", SETTINGS)?;
        let mut engine = Self { daemon: Daemon::start(folder, cgroups, DAEMON)? };
        let mut version = engine.client();
        version.arg("version");
        engine.daemon.wait_until_it_answers(version)?;
        Ok(engine)
    }
}

impl Client for Podman {
    const PARENT: &'static str = "libpod_parent";
    const PREFIX: &'static str = "libpod-";

    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn client(&self) -> Command {
        let mut command = Command::new(CLIENT);
        command.arg("--url").arg(format!("unix://{}", self.daemon.folder().socket().display()));
        command
    }

    fn end(self) -> anyhow::Result<()> {
        self.daemon.stop()
    }
}
