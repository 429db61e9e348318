//! Podman.

use std::process::Command;

use xtask_common::packages;

use super::{Cgroups, Client, Daemon, daemon::Folder};

/// Name of the engine.
pub const NAME: &str = "podman";
const CLIENT: &str = "/usr/bin/podman";

/// Starts the API service for the client and the sidecar.
const DAEMON: &str = r#"
export CONTAINERS_CONF="$1/containers.conf"
exec podman --root "$1/root" --runroot "$1/run" --tmpdir "$1/tmp" --network-config-dir "$1/networks" \
    system service --time 0 "unix://$2"
"#;

/// Settings without limits: the host may not grant them, and on hybrid hosts cgroup v2 lacks the controllers that v1 uses. Only the runtime
/// runc supports hybrid hosts.
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
    /// Starts Podman and waits until it is ready. Installs Podman if it is missing.
    pub fn start(cgroups: Cgroups) -> anyhow::Result<Self> {
        packages::install(&["podman", "runc", "netavark", "iptables", "iproute2", "util-linux"])?;
        let folder = Folder::create(NAME)?;
        folder.settings("containers.conf", SETTINGS)?;
        let mut engine = Self { daemon: Daemon::start(folder, cgroups, DAEMON)? };
        let mut version = engine.client();
        version.arg("version");
        engine.daemon.wait_until_ready(version)?;
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
