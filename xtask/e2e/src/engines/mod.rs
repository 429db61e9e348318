//! Container engines for tests, isolated from other engines on the machine, and images built from local files.

mod archive;
mod bridge;
mod cgroup;
mod client;
mod containerd;
mod daemon;
mod docker;
pub mod images;
mod podman;

use std::path::Path;

pub use self::{cgroup::Cgroups, client::Client, daemon::Daemon, docker::Docker};
use self::{containerd::Containerd, podman::Podman};

/// A kind of engine.
pub struct Kind {
    /// The value of `container.runtime.name`.
    pub name: &'static str,
    /// Starts an engine and waits until it is ready. Installs the engine if it is missing.
    pub start: fn(Cgroups) -> anyhow::Result<Box<dyn Engine>>,
}

/// All kinds of engines.
pub const KINDS: &[Kind] = &[
    Kind { name: docker::NAME, start: |cgroups| Ok(Box::new(Docker::start(cgroups)?)) },
    Kind { name: containerd::NAME, start: |cgroups| Ok(Box::new(Containerd::start(cgroups)?)) },
    Kind { name: podman::NAME, start: |cgroups| Ok(Box::new(Podman::start(cgroups)?)) },
];

/// A running engine. On drop, the engine ends with its containers, images and networks.
pub trait Engine: Sync {
    /// Returns the engine's daemon.
    fn daemon(&self) -> &Daemon;

    /// Imports an image.
    fn load(&self, archive: &Path) -> anyhow::Result<()>;

    /// Starts a container on the engine's bridge. Returns its id of 64 hexadecimal digits.
    fn run(&self, container: &New<'_>) -> anyhow::Result<String>;

    /// Returns a container's address on the bridge.
    fn address(&self, id: &str) -> anyhow::Result<String>;

    /// Returns the path of a container's cgroup, relative to the root of the hierarchy.
    fn cgroup(&self, id: &str) -> String;

    /// Returns a container's output.
    fn printed(&self, id: &str) -> anyhow::Result<String>;

    /// Stops containers without removing them.
    fn stop(&self, ids: &[&str]) -> anyhow::Result<()>;

    /// Starts a stopped container.
    fn start(&self, id: &str) -> anyhow::Result<()>;

    /// Stops and starts a container.
    fn restart(&self, id: &str) -> anyhow::Result<()> {
        self.stop(&[id])?;
        self.start(id)
    }

    /// Removes stopped containers.
    fn remove(&self, ids: &[&str]) -> anyhow::Result<()>;

    /// Ends the engine. Returns an error if files or cgroups remain.
    fn end(self: Box<Self>) -> anyhow::Result<()>;
}

/// Properties of a new container.
pub struct New<'a> {
    /// The container's name.
    pub name: &'a str,
    /// The image's name and tag.
    pub image: &'a str,
    /// A folder of the host, mounted at an equal path.
    pub volume: &'a Path,
    /// Variables of the program's environment, each as `NAME=VALUE`.
    pub environment: &'a [&'a str],
    /// The program in the image, and its arguments.
    pub command: &'a [&'a str],
}
