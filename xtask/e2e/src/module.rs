//! Programs that are built from pinned Go modules and kept in the cache.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use serde::Deserialize;
use xtask_common::{hash, machine};

use crate::{
    cached,
    go::{Go, Version},
};

/// A program in a Go module.
pub struct GoModule {
    /// The program's name for people.
    pub title: &'static str,
    /// The name of the binary, and of its folder in the cache.
    pub binary: &'static str,
    /// The program's version.
    pub version: &'static str,
    /// The path of the module.
    pub module: &'static str,
    /// Pins the version of the module.
    pub go_mod: &'static str,
    /// The checksums of the module.
    pub go_sum: &'static str,
    /// Arguments of `go`. `-mod=readonly`: the go.sum of the module verifies all dependencies.
    pub build: &'static [&'static str],
    /// The package of the program.
    pub package: &'static str,
    /// The oldest Go that the module accepts.
    pub oldest_go: Version,
    /// The argument that prints the program's version.
    pub print_version: &'static str,
}

/// The answer of `go mod download -json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    /// The folder with the sources, which is read-only.
    dir: PathBuf,
}

impl GoModule {
    /// Returns the path of the program in the cache, and builds the program if it is missing. It is static.
    pub fn path(&self) -> anyhow::Result<PathBuf> {
        let inputs = [self.go_mod, self.go_sum, &self.build.join(" "), " ", self.package].concat();
        let name = format!("{}-{}", self.binary, &hash::sha256(inputs.as_bytes())[..12]);
        cached::program(&format!("{}/{}", self.binary, self.version), &name, |folder| self.build_in(folder))
    }

    fn build_in(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let (title, version) = (self.title, self.version);
        let go = Go::find(title, self.oldest_go)?;
        eprintln!("building {title} {version}: one to four minutes on two cores, once");
        for (file, text) in [("go.mod", self.go_mod), ("go.sum", self.go_sum)] {
            fs::write(folder.join(file), text).with_context(|| format!("cannot write {file}"))?;
        }
        // Compares the checksum with go.sum.
        let downloaded = machine::output(go.command(folder)?.args(["mod", "download", "-json", self.module]))
            .with_context(|| format!("cannot download the Go module of {title}"))?;
        let Download { dir } = serde_json::from_str(&downloaded).context("`go mod download` has another format")?;
        let binary = folder.join(self.binary);
        machine::output(go.command(&dir)?.args(self.build).arg("-o").arg(&binary).arg(self.package))
            .with_context(|| format!("{title} does not compile"))?;
        // A binary that cannot start must not enter the cache.
        machine::output(Command::new(&binary).arg(self.print_version))?;
        Ok(binary)
    }
}
