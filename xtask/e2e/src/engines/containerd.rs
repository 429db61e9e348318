//! containerd, through its client `ctr`.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use xtask_common::{hash, machine, packages, process};

use super::{
    Cgroups, Daemon, Engine, New,
    bridge::{Bridge, Port},
    cgroup::Group,
    daemon::Folder,
};

/// Name of the engine.
pub const NAME: &str = "containerd";
const CLIENT: &str = "/usr/bin/ctr";
/// The client's default namespace, which is also the parent of the containers' cgroups.
const NAMESPACE: &str = "default";
/// The label of nerdctl that contains the name of a container.
const LABEL: &str = "nerdctl/name";
/// Timeout for the start or the end of a container on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts the daemon.
const DAEMON: &str = r#"
exec containerd --config "$1/config.toml" --root "$1/root" --state "$1/state" --address "$2"
"#;

/// Settings that keep the daemon's files in its folder. CRI stays on, because most installations use it.
const SETTINGS: &str = r#"
version = 2
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "FOLDER/cni"
[plugins."io.containerd.internal.v1.opt"]
path = "FOLDER/opt"
"#;

/// A running engine.
pub struct Containerd {
    /// Existing containers by id.
    containers: Mutex<BTreeMap<String, Container>>,
    daemon: Daemon,
    bridge: Bridge,
}

/// A container's client, its port on the bridge, and its cgroup, which is outside the daemon's cgroup.
struct Container {
    client: Child,
    port: Port,
    group: Group,
}

impl Containerd {
    /// Starts containerd and waits until it is ready. Installs containerd if it is missing.
    pub fn start(cgroups: Cgroups) -> anyhow::Result<Self> {
        packages::install(&["containerd", "iproute2", "util-linux"])?;
        let folder = Folder::create(NAME)?;
        folder.settings("config.toml", &SETTINGS.replace("FOLDER", &folder.path().display().to_string()))?;
        let mut daemon = Daemon::start(folder, cgroups, DAEMON)?;
        let mut version = client(&daemon);
        version.arg("version");
        daemon.wait_until_ready(version)?;
        let bridge = Bridge::create(&daemon)?;
        Ok(Self { containers: Mutex::default(), daemon, bridge })
    }

    fn containers(&self) -> MutexGuard<'_, BTreeMap<String, Container>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of the output of a container and its client.
    fn log(&self, id: &str) -> PathBuf {
        self.daemon.folder().path().join(id)
    }

    /// Runs a command that starts a container's task, and waits for the start. The client waits for the task's end and removes the task;
    /// a detached client would leave the task and its cgroup.
    fn spawn(&self, id: &str, command: &mut Command) -> anyhow::Result<Child> {
        let log = File::options().create(true).append(true).open(self.log(id))?;
        let mut client = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let started = process::wait_for("a container to start", PATIENCE, || {
            if let Some(status) = client.try_wait()? {
                ensure!(status.success(), "its client ended ({status})");
                return Ok(Some(()));
            }
            let tasks = machine::output(self::client(&self.daemon).args(["tasks", "list", "--quiet"]))?;
            Ok(tasks.lines().any(|task| task == id).then_some(()))
        });
        if let Err(error) = started {
            process::end(&mut client, PATIENCE)?;
            return Err(error.context(self.printed(id)?));
        }
        Ok(client)
    }
}

impl Engine for Containerd {
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn load(&self, archive: &Path) -> anyhow::Result<()> {
        machine::output(client(&self.daemon).args(["images", "import"]).arg(archive)).map(drop)
    }

    fn run(&self, container: &New<'_>) -> anyhow::Result<String> {
        let port = self.bridge.join(&self.daemon)?;
        // Ids in the format of nerdctl. containerd leaves the choice to its client.
        let id = hash::sha256(self.log(port.name()).as_os_str().as_encoded_bytes());
        let volume = container.volume.display();
        let mut run = client(&self.daemon);
        // No CPU shares: on hybrid hosts, cgroup v2 lacks the controllers that v1 uses.
        run.args(["run", "--cpu-shares", "0", "--fifo-dir"]).arg(self.daemon.folder().path().join("fifo"));
        run.args(["--with-ns", &format!("network:{}", port.path()), "--label", &format!("{LABEL}={}", container.name)]);
        run.args(["--mount", &format!("type=bind,src={volume},dst={volume},options=rbind:rw")]);
        container.environment.iter().for_each(|variable| _ = run.args(["--env", variable]));
        run.args([container.image, &id]).args(container.command);
        let group = Group::of_an_engine(&self.cgroup(&id))?;
        let client = self.spawn(&id, &mut run)?;
        self.containers().insert(id.clone(), Container { client, port, group });
        Ok(id)
    }

    fn address(&self, id: &str) -> anyhow::Result<String> {
        Ok(self.containers().get(id).context("no such container")?.port.address().to_string())
    }

    fn cgroup(&self, id: &str) -> String {
        format!("{NAMESPACE}/{id}")
    }

    fn printed(&self, id: &str) -> anyhow::Result<String> {
        Ok(fs::read_to_string(self.log(id))?)
    }

    fn stop(&self, ids: &[&str]) -> anyhow::Result<()> {
        for id in ids {
            // The client forwards the signal.
            process::end(&mut self.containers().get_mut(*id).context("no such container")?.client, PATIENCE)?;
        }
        Ok(())
    }

    fn start(&self, id: &str) -> anyhow::Result<()> {
        let mut start = client(&self.daemon);
        start.args(["tasks", "start", "--fifo-dir"]).arg(self.daemon.folder().path().join("fifo")).arg(id);
        let client = self.spawn(id, &mut start)?;
        self.containers().get_mut(id).context("no such container")?.client = client;
        Ok(())
    }

    fn remove(&self, ids: &[&str]) -> anyhow::Result<()> {
        machine::output(client(&self.daemon).args(["containers", "delete"]).args(ids))?;
        for id in ids {
            let container = self.containers().remove(*id).context("no such container")?;
            container.group.remove()?;
            self.bridge.leave(&self.daemon, &container.port)?;
        }
        Ok(())
    }

    fn end(self: Box<Self>) -> anyhow::Result<()> {
        let Self { containers, daemon, .. } = *self;
        let containers = containers.into_inner().unwrap_or_else(PoisonError::into_inner);
        containers.into_values().try_for_each(|mut container| {
            process::end(&mut container.client, PATIENCE)?;
            container.group.remove()
        })?;
        daemon.stop()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Err(error) = process::end(&mut self.client, PATIENCE) {
            eprintln!("a container's client did not exit: {error:#}");
        }
        // The drop of the cgroup kills the remaining processes.
    }
}

fn client(daemon: &Daemon) -> Command {
    let mut command = Command::new(CLIENT);
    command.arg("--address").arg(daemon.folder().socket()).args(["--namespace", NAMESPACE]);
    command
}
