//! Containers, and what they say at their end.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use tempfile::TempDir;

use super::{history::Ended, peer::Report};
use crate::{
    e2e::docker::{Engine, images},
    machine, process,
};

/// The image's name, as people give it.
pub const IMAGE: &str = "registry.example/team/peer";
/// Its tag.
pub const TAG: &str = "1.27";
/// Longer than a container takes for its messages on a busy machine.
const WORK: Duration = Duration::from_secs(60);

/// What starts containers of one image.
pub struct Containers<'a> {
    engine: &'a Engine,
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
    report: PathBuf,
}

impl<'a> Containers<'a> {
    /// Makes their image.
    pub fn new(engine: &'a Engine) -> anyhow::Result<Self> {
        images::program(engine, Path::new(machine::MYSELF), &["e2e", "peer"], &format!("{IMAGE}:{TAG}"))?;
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
        let mut command = self.engine.docker();
        command.args(["run", "--detach", "--name", name, "--stop-timeout", "10", "--volume"]);
        command.arg(format!("{0}:{0}", self.reports.path().display()));
        command.arg(format!("{IMAGE}:{TAG}")).arg("--report").arg(&report).args(role);
        let id = machine::output(&mut command)?.trim().to_owned();
        Ok(Container { name: name.to_owned(), id, report })
    }

    /// Its address on the engine's bridge.
    pub fn address(&self, container: &Container) -> anyhow::Result<String> {
        let mut command = self.engine.docker();
        command.args(["inspect", "--format", "{{.NetworkSettings.IPAddress}}", &container.id]);
        Ok(machine::output(&mut command)?.trim().to_owned())
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
        self.call("stop", &containers)?;
        self.call("rm", &containers)?;
        let ended =
            |container: Container| Ok(Ended { report: self.wait_for_report(&container)?, container, nameless: false });
        containers.into_iter().map(ended).collect()
    }

    /// Ends a container and keeps it.
    pub fn stop(&self, container: &Container) -> anyhow::Result<()> {
        self.call("stop", std::slice::from_ref(container))
    }

    /// Starts a container again, by `docker start` or `docker restart`, and waits until it is idle.
    pub fn again(&self, container: &Container, verb: &str) -> anyhow::Result<()> {
        // That it is idle it said in its life before. Its next report takes the place of the one before.
        fs::remove_file(Report::idle(&container.report)).context("it was not idle")?;
        self.call(verb, std::slice::from_ref(container))?;
        self.wait_until_idle(container)
    }

    fn call(&self, verb: &str, containers: &[Container]) -> anyhow::Result<()> {
        let mut command = self.engine.docker();
        command.arg(verb).args(containers.iter().map(|container| &container.id));
        machine::output(&mut command)?;
        Ok(())
    }

    fn printed(&self, container: &Container) -> String {
        let output = self.engine.docker().args(["logs", &container.id]).output();
        output.map_or_else(
            |error| format!("nothing: {error}"),
            |output| [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat(),
        )
    }
}
