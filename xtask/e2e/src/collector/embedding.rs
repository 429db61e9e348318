//! A collector with the receiver `undercurrent`, built by the manifest in otel-config.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use xtask_common::{hash, machine};

use super::{VERSION, build};
use crate::{
    cached,
    go::{Go, Version},
};

/// The folder of the receiver's Go module.
const MODULE: &str = "receiver/collector";
/// The manifest.
const MANIFEST: &str = "otel-config/collector-builder.yaml";
/// The oldest Go that the module accepts.
const OLDEST_GO: Version = Version(1, 25);

/// Runs the tests of the receiver's module.
///
/// # Errors
/// If a test fails.
pub fn test() -> anyhow::Result<()> {
    let go = Go::find("the collector's receiver", OLDEST_GO)?;
    let mut command = go.command(&machine::workspace().join(MODULE))?;
    machine::output(command.args(["test", "-count=1", "./..."]))
        .context("the tests of receiver/collector fail")
        .map(drop)
}

/// Returns the path of the binary in the cache, and builds it if it is missing or the receiver changed.
pub(super) fn path() -> anyhow::Result<PathBuf> {
    let module = machine::workspace().join(MODULE);
    let manifest = manifest(&module)?;
    let inputs = manifest.clone() + &sources(&module)? + &build::FLAGS.join(" ");
    let name = format!("otelcol-undercurrent-{}", &hash::sha256(inputs.as_bytes())[..12]);
    cached::program(&format!("collector/{VERSION}"), &name, |work| build::build(&manifest, VERSION, work))
}

/// Returns the manifest with the paths of this checkout.
fn manifest(module: &Path) -> anyhow::Result<String> {
    let manifest = fs::read_to_string(machine::workspace().join(MANIFEST)).with_context(|| format!("no {MANIFEST}"))?;
    let (relative, output) = (format!("path: ./{MODULE}\n"), "output_path: ./target/otelcol-undercurrent\n");
    ensure!(manifest.contains(&relative) && manifest.contains(output), "{MANIFEST} has other paths");
    let absolute = format!("path: {}\n", module.display());
    Ok(manifest.replace(&relative, &absolute).replace(output, "output_path: ./sources\n"))
}

/// Returns the content of the module's files.
fn sources(module: &Path) -> anyhow::Result<String> {
    let entries = fs::read_dir(module).with_context(|| format!("cannot read {}", module.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    let read = |path: &PathBuf| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    files.iter().map(read).collect()
}
