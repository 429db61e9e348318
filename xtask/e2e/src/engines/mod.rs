//! Container engines of a test's own, apart from any other on the machine, and images for them that nobody had to pull.

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
    /// Its name, as `container.runtime.name` has it.
    pub name: &'static str,
    /// Starts one with these cgroups, and waits until it answers. Installs it where it is missing.
    pub start: fn(Cgroups) -> anyhow::Result<Box<dyn Engine>>,
}

/// Every kind that there is.
pub const KINDS: &[Kind] = &[
    Kind { name: docker::NAME, start: |cgroups| Ok(Box::new(Docker::start(cgroups)?)) },
    Kind { name: containerd::NAME, start: |cgroups| Ok(Box::new(Containerd::start(cgroups)?)) },
    Kind { name: podman::NAME, start: |cgroups| Ok(Box::new(Podman::start(cgroups)?)) },
];

/// A running engine. It ends with the value, and with it its containers, its images and its networks.
pub trait Engine: Sync {
    /// What serves it.
    fn daemon(&self) -> &Daemon;

    /// Takes in an image.
    fn load(&self, archive: &Path) -> anyhow::Result<()>;

    /// Starts a container on the engine's bridge, and returns its id, 64 digits.
    fn run(&self, container: &New<'_>) -> anyhow::Result<String>;

    /// A container's address on the bridge.
    fn address(&self, id: &str) -> anyhow::Result<String>;

    /// A container's cgroup, from the root of the hierarchies.
    fn cgroup(&self, id: &str) -> String;

    /// What a container printed.
    fn printed(&self, id: &str) -> anyhow::Result<String>;

    /// Ends containers and keeps them.
    fn stop(&self, ids: &[&str]) -> anyhow::Result<()>;

    /// Starts a container again that has ended.
    fn start(&self, id: &str) -> anyhow::Result<()>;

    /// Ends a container and starts it again.
    fn restart(&self, id: &str) -> anyhow::Result<()> {
        self.stop(&[id])?;
        self.start(id)
    }

    /// Removes containers that have ended.
    fn remove(&self, ids: &[&str]) -> anyhow::Result<()>;

    /// Ends it, and says when something of it stays behind.
    fn end(self: Box<Self>) -> anyhow::Result<()>;
}

/// A container to be.
pub struct New<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its image's name and tag.
    pub image: &'a str,
    /// A folder of the host that it has under the same path.
    pub volume: &'a Path,
    /// The program in the image, and its arguments.
    pub command: &'a [&'a str],
}
