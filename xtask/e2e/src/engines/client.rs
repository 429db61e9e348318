//! The commands of Docker's client. Podman's client is compatible.

use std::{path::Path, process::Command};

use xtask_common::machine;

use super::{Daemon, Engine, New};

/// An engine with a client that accepts Docker's commands.
pub trait Client: Sync {
    /// Name of the parent of the containers' cgroups, below the daemon's cgroup.
    const PARENT: &'static str;
    /// Prefix of the containers' cgroups, before the id.
    const PREFIX: &'static str;

    /// Returns the engine's daemon.
    fn daemon(&self) -> &Daemon;

    /// Returns a call of the client.
    fn client(&self) -> Command;

    /// Ends the engine. Returns an error if files or cgroups remain.
    fn end(self) -> anyhow::Result<()>;

    /// Returns the path of the parent of the containers' cgroups.
    fn parent(&self) -> String {
        format!("{}/{}", self.daemon().group(), Self::PARENT)
    }

    /// Runs a subcommand of the client and returns its output.
    fn call(&self, verb: &str, arguments: &[&str]) -> anyhow::Result<String> {
        Ok(machine::output(self.client().arg(verb).args(arguments))?.trim().to_owned())
    }
}

impl<T: Client> Engine for T {
    fn daemon(&self) -> &Daemon {
        Client::daemon(self)
    }

    fn load(&self, archive: &Path) -> anyhow::Result<()> {
        machine::output(self.client().args(["load", "--input"]).arg(archive)).map(drop)
    }

    fn run(&self, container: &New<'_>) -> anyhow::Result<String> {
        let (parent, volume) = (format!("/{}", self.parent()), container.volume.display());
        let mut run = self.client();
        run.args(["run", "--detach", "--name", container.name, "--stop-timeout", "10", "--cgroup-parent", &parent]);
        container.environment.iter().for_each(|variable| _ = run.args(["--env", variable]));
        run.args(["--volume", &format!("{volume}:{volume}"), container.image]);
        Ok(machine::output(run.args(container.command))?.trim().to_owned())
    }

    fn address(&self, id: &str) -> anyhow::Result<String> {
        self.call("inspect", &["--format", "{{.NetworkSettings.IPAddress}}", id])
    }

    fn cgroup(&self, id: &str) -> String {
        format!("{}/{}{id}", self.parent(), Self::PREFIX)
    }

    fn printed(&self, id: &str) -> anyhow::Result<String> {
        let output = self.client().args(["logs", id]).output()?;
        Ok([output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat())
    }

    fn stop(&self, ids: &[&str]) -> anyhow::Result<()> {
        self.call("stop", ids).map(drop)
    }

    fn start(&self, id: &str) -> anyhow::Result<()> {
        self.call("start", &[id]).map(drop)
    }

    fn restart(&self, id: &str) -> anyhow::Result<()> {
        self.call("restart", &[id]).map(drop)
    }

    fn remove(&self, ids: &[&str]) -> anyhow::Result<()> {
        self.call("rm", ids).map(drop)
    }

    fn end(self: Box<Self>) -> anyhow::Result<()> {
        Client::end(*self)
    }
}
