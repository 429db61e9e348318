//! The packaging tools, which cargo builds into the cache.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use xtask_common::{cargo, machine};

use super::{binary, files::Format};

/// A tool of cargo, at a fixed version.
struct Tool {
    name: &'static str,
    version: &'static str,
}

const CARGO_DEB: Tool = Tool { name: "cargo-deb", version: "3.8.0" };
const CARGO_GENERATE_RPM: Tool = Tool { name: "cargo-generate-rpm", version: "0.21.1" };

impl Tool {
    /// Returns the path of the tool, and builds it if it is missing.
    fn path(&self) -> anyhow::Result<PathBuf> {
        let Self { name, version } = self;
        // The path contains the version, so an update does not reuse an old build.
        let root = machine::cache(name)?.join(version);
        let tool = root.join("bin").join(name);
        if !tool.is_file() {
            eprintln!("building {name} {version} (about two minutes)");
            let mut command = cargo::command();
            command.args(["install", name, "--version", version, "--locked", "--quiet", "--root"]).arg(&root);
            machine::output(&mut command).with_context(|| format!("cannot build {name}"))?;
        }
        Ok(tool)
    }
}

/// Writes a package of the staged project.
pub fn package(format: Format, stage: &Path, package: &Path) -> anyhow::Result<()> {
    let tool = match format {
        Format::Deb => CARGO_DEB,
        Format::Rpm => CARGO_GENERATE_RPM,
    };
    let mut command = Command::new(tool.path()?);
    match format {
        Format::Deb => command.args(["deb", "--no-build", "--no-strip", "--quiet"]),
        Format::Rpm => command.arg("generate-rpm"),
    };
    command.args(["--target", binary::TARGET, "--output"]).arg(package).current_dir(stage);
    machine::output(&mut command).map(drop)
}
