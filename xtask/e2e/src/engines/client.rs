//! The commands of Docker's client, which Podman's takes too.

use std::{path::Path, process::Command};
use xtask_common::machine;

use super::{Daemon, Engine, New};

/// An engine with such a client.
pub trait Client: Sync {
    /// The cgroup that its containers' stand in: the one that it makes elsewhere, here below its daemon's.
    const PARENT: &'static str;
    /// What its containers' cgroups are called: this, and the id.
    const PREFIX: &'static str;

    /// What serves it.
    fn daemon(&self) -> &Daemon;

    /// A call of the client.
    fn client(&self) -> Command;

    /// Ends it, and says when something of it stays behind.
    fn end(self) -> anyhow::Result<()>;

    /// The cgroup that its containers' stand in, from the root of the hierarchies.
    fn parent(&self) -> String {
        format!("{}/{}", self.daemon().group(), Self::PARENT)
    }

    /// Runs a verb and returns what the client printed.
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
