//! Containers and their reports.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use tempfile::TempDir;
use xtask_common::{machine, process};

use super::peer::Report;
use crate::engines::{Engine, New, images};

/// The image's name without its tag.
pub const IMAGE: &str = "registry.example/team/peer";
/// The image's tag.
pub const TAG: &str = "1.27";
/// Timeout for a container's messages on a busy machine.
const WORK: Duration = Duration::from_secs(60);

/// Starts containers of one image.
pub struct Containers<'a> {
    engine: &'a dyn Engine,
    /// The folder of the reports.
    reports: TempDir,
}

/// A container.
#[derive(Clone, Debug)]
pub struct Container {
    /// The container's name.
    pub name: String,
    /// The id of 64 hexadecimal digits.
    pub id: String,
    /// The name of the engine.
    pub runtime: &'static str,
    report: PathBuf,
}

/// A container that has ended.
pub struct Ended {
    /// The container.
    pub container: Container,
    /// Packets that the container received, by its own count.
    pub report: Report,
    /// True if the container may have ended before the sidecar could read its name.
    pub nameless: bool,
}

impl<'a> Containers<'a> {
    /// Creates the image.
    pub fn new(engine: &'a dyn Engine) -> anyhow::Result<Self> {
        images::program(engine, Path::new(machine::MYSELF), &format!("{IMAGE}:{TAG}"))?;
        let reports = tempfile::tempdir().context("cannot create a folder for the containers")?;
        Ok(Self { engine, reports })
    }

    /// Starts a container with a role, see [`super::peer`].
    pub fn start(&self, name: &str, role: &[&str]) -> anyhow::Result<Container> {
        self.start_with(&[], name, role)
    }

    /// Starts a container with variables in its environment, each as `NAME=VALUE`.
    pub fn start_with(&self, environment: &[&str], name: &str, role: &[&str]) -> anyhow::Result<Container> {
        let report = self.reports.path().join(name);
        for old in [report.clone(), Report::idle(&report)] {
            // Remove the files of a previous container with this name.
            let _ = fs::remove_file(old);
        }
        let path = report.to_str().context("the temporary folder's path is not UTF-8")?;
        let command = [&["/program", "e2e", "peer", "--report", path], role].concat();
        let image = format!("{IMAGE}:{TAG}");
        let volume = self.reports.path();
        let id = self.engine.run(&New { name, image: &image, volume, environment, command: &command })?;
        Ok(Container { name: name.to_owned(), id, runtime: self.engine.daemon().name(), report })
    }

    /// Returns the path of a file that containers can wait for.
    pub fn gate(&self) -> PathBuf {
        self.reports.path().join("gate")
    }

    /// Returns a container's address on the engine's bridge.
    pub fn address(&self, container: &Container) -> anyhow::Result<String> {
        self.engine.address(&container.id)
    }

    /// Waits until a container has finished its work.
    pub fn wait_until_idle(&self, container: &Container) -> anyhow::Result<()> {
        let idle = || Ok(Report::idle(&container.report).exists().then_some(()));
        process::wait_for(&format!("the container {}", container.name), WORK, idle)
            .with_context(|| format!("its output:\n{}", self.printed(container)))
    }

    /// Waits for a container's end and returns its report.
    pub fn wait_for_report(&self, container: &Container) -> anyhow::Result<Report> {
        process::wait_for(&format!("the end of {}", container.name), WORK, || Report::read(&container.report))
            .with_context(|| format!("its output:\n{}", self.printed(container)))
    }

    /// Stops containers, removes them and returns their reports.
    pub fn end(&self, containers: Vec<Container>) -> anyhow::Result<Vec<Ended>> {
        let ids: Vec<_> = containers.iter().map(|container| container.id.as_str()).collect();
        self.engine.stop(&ids)?;
        self.engine.remove(&ids)?;
        let ended =
            |container: Container| Ok(Ended { report: self.wait_for_report(&container)?, container, nameless: false });
        containers.into_iter().map(ended).collect()
    }

    /// Stops a container without removing it.
    pub fn stop(&self, container: &Container) -> anyhow::Result<()> {
        self.engine.stop(&[&container.id])
    }

    /// Restarts a container with one command.
    pub fn restart(&self, container: &Container) -> anyhow::Result<()> {
        self.again(container, |id| self.engine.restart(id))
    }

    /// Starts a stopped container.
    pub fn start_again(&self, container: &Container) -> anyhow::Result<()> {
        self.again(container, |id| self.engine.start(id))
    }

    fn again(&self, container: &Container, start: impl FnOnce(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
        // Remove the mark of the previous run. The next report replaces the previous one.
        fs::remove_file(Report::idle(&container.report)).context("the container was not idle")?;
        start(&container.id)?;
        self.wait_until_idle(container)
    }

    fn printed(&self, container: &Container) -> String {
        self.engine.printed(&container.id).unwrap_or_else(|error| format!("unknown: {error:#}"))
    }
}
