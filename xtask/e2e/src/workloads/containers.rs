//! Containers, and what they say at their end.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use tempfile::TempDir;
use xtask_common::{machine, process};

use super::{history::Ended, peer::Report};
use crate::engines::{Engine, New, images};

/// The image's name, as people give it.
pub const IMAGE: &str = "registry.example/team/peer";
/// Its tag.
pub const TAG: &str = "1.27";
/// Longer than a container takes for its messages on a busy machine.
const WORK: Duration = Duration::from_secs(60);

/// What starts containers of one image.
pub struct Containers<'a> {
    engine: &'a dyn Engine,
    /// Where they write reports.
    reports: TempDir,
}

/// A container that was started.
#[derive(Clone, Debug)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its id, 64 digits.
    pub id: String,
    /// Its engine's name.
    pub runtime: &'static str,
    report: PathBuf,
}

impl<'a> Containers<'a> {
    /// Makes their image.
    pub fn new(engine: &'a dyn Engine) -> anyhow::Result<Self> {
        images::program(engine, Path::new(machine::MYSELF), &format!("{IMAGE}:{TAG}"))?;
        let reports = tempfile::tempdir().context("cannot make a folder for the containers")?;
        Ok(Self { engine, reports })
    }

    /// Starts one by this name that does something, see [`super::peer`].
    pub fn start(&self, name: &str, role: &[&str]) -> anyhow::Result<Container> {
        let report = self.reports.path().join(name);
        for old in [report.clone(), Report::idle(&report)] {
            // Another container of this name may have left it.
            let _ = fs::remove_file(old);
        }
        let path = report.to_str().context("the temporary folder's path is not UTF-8")?;
        let command = [&["/program", "e2e", "peer", "--report", path], role].concat();
        let image = format!("{IMAGE}:{TAG}");
        let id = self.engine.run(&New { name, image: &image, volume: self.reports.path(), command: &command })?;
        Ok(Container { name: name.to_owned(), id, runtime: self.engine.daemon().name(), report })
    }

    /// A file that containers may be told to wait for.
    pub fn gate(&self) -> PathBuf {
        self.reports.path().join("gate")
    }

    /// Its address on the engine's bridge.
    pub fn address(&self, container: &Container) -> anyhow::Result<String> {
        self.engine.address(&container.id)
    }

    /// Waits until it has no more to do than to wait for its end.
    pub fn wait_until_idle(&self, container: &Container) -> anyhow::Result<()> {
        let idle = || Ok(Report::idle(&container.report).exists().then_some(()));
        process::wait_for(&format!("the container {}", container.name), WORK, idle)
            .with_context(|| format!("it printed:\n{}", self.printed(container)))
    }

    /// Waits for its end, and returns what it said.
    pub fn wait_for_report(&self, container: &Container) -> anyhow::Result<Report> {
        process::wait_for(&format!("the end of {}", container.name), WORK, || Report::read(&container.report))
            .with_context(|| format!("it printed:\n{}", self.printed(container)))
    }

    /// Ends containers and removes them.
    pub fn end(&self, containers: Vec<Container>) -> anyhow::Result<Vec<Ended>> {
        let ids: Vec<_> = containers.iter().map(|container| container.id.as_str()).collect();
        self.engine.stop(&ids)?;
        self.engine.remove(&ids)?;
        let ended =
            |container: Container| Ok(Ended { report: self.wait_for_report(&container)?, container, nameless: false });
        containers.into_iter().map(ended).collect()
    }

    /// Ends a container and keeps it.
    pub fn stop(&self, container: &Container) -> anyhow::Result<()> {
        self.engine.stop(&[&container.id])
    }

    /// Ends a container and starts it again, in one.
    pub fn restart(&self, container: &Container) -> anyhow::Result<()> {
        self.again(container, |id| self.engine.restart(id))
    }

    /// Starts a container again that has ended.
    pub fn start_again(&self, container: &Container) -> anyhow::Result<()> {
        self.again(container, |id| self.engine.start(id))
    }

    fn again(&self, container: &Container, start: impl FnOnce(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
        // That it is idle it said in its life before. Its next report takes the place of the one before.
        fs::remove_file(Report::idle(&container.report)).context("it was not idle")?;
        start(&container.id)?;
        self.wait_until_idle(container)
    }

    fn printed(&self, container: &Container) -> String {
        self.engine.printed(&container.id).unwrap_or_else(|error| format!("nothing: {error:#}"))
    }
}
