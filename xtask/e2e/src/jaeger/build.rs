//! Builds Jaeger from its Go module.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use serde::Deserialize;
use xtask_common::machine;

use super::{GO_MOD, GO_SUM, VERSION};
use crate::go::{Go, Version};

const MODULE: &str = "github.com/jaegertracing/jaeger";
/// Arguments of `go`. `-mod=readonly`: the go.sum of the module verifies all dependencies.
pub const FLAGS: [&str; 6] =
    ["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "./cmd/jaeger"];
/// The oldest Go that the module accepts.
const OLDEST_GO: Version = Version(1, 25);

/// The answer of `go mod download -json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    /// The folder with the sources, which is read-only.
    dir: PathBuf,
}

/// Builds the program in a folder and returns its path.
pub fn build(folder: &Path) -> anyhow::Result<PathBuf> {
    let go = Go::find("Jaeger", OLDEST_GO)?;
    eprintln!("building Jaeger {VERSION}: four minutes on two cores, once");
    for (file, text) in [("go.mod", GO_MOD), ("go.sum", GO_SUM)] {
        fs::write(folder.join(file), text).with_context(|| format!("cannot write {file}"))?;
    }
    // Compares the checksum with go.sum.
    let downloaded = machine::output(go.command(folder)?.args(["mod", "download", "-json", MODULE]))
        .context("cannot download Jaeger's Go module")?;
    let Download { dir } = serde_json::from_str(&downloaded).context("`go mod download` has another format")?;
    let binary = folder.join("jaeger");
    let [verb, options @ .., package] = FLAGS;
    let mut compile = go.command(&dir)?;
    compile.arg(verb).args(options).arg("-o").arg(&binary).arg(package);
    machine::output(&mut compile).context("Jaeger does not compile")?;
    // A binary that cannot start must not enter the cache.
    machine::output(Command::new(&binary).arg("version"))?;
    Ok(binary)
}
