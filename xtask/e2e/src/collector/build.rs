//! Builds the collector with the OpenTelemetry Collector Builder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use xtask_common::machine;

use crate::go::{Go, Version};

/// Arguments of `go`. `-mod=mod`: the build writes go.sum and checks every module against the checksum database. `go mod tidy` would
/// also fetch modules that only tests of other modules need.
pub const FLAGS: [&str; 5] = ["build", "-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"];

/// The oldest Go that the collector's modules accept.
const OLDEST_GO: Version = Version(1, 25);

/// Builds the collector in a folder and returns the path of the binary.
pub fn build(manifest: &str, version: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let go = Go::find("the collector", OLDEST_GO)?;
    eprintln!("building the OpenTelemetry Collector {version}: three minutes on two cores, once");
    let manifest_file = folder.join("manifest.yaml");
    fs::write(&manifest_file, manifest).with_context(|| format!("cannot write {}", manifest_file.display()))?;

    let builder = format!("go.opentelemetry.io/collector/cmd/builder@v{version}");
    let mut generate = go.command(folder)?;
    generate.args(["run", &builder, "--skip-compilation", "--skip-get-modules", "--config"]).arg(&manifest_file);
    machine::output(&mut generate).context("the collector's builder could not generate its sources")?;

    let binary = folder.join("otelcol-contrib");
    let mut compile = go.command(&folder.join("sources"))?;
    compile.args(FLAGS).arg("-o").arg(&binary).arg(".");
    machine::output(&mut compile).context("the collector does not compile")?;

    // A binary that cannot start must not enter the cache.
    machine::output(std::process::Command::new(&binary).arg("--version"))?;
    Ok(binary)
}
