//! `cargo xtask collector`: a real OpenTelemetry Collector, built from its Go modules and kept in the cache.

mod build;
pub mod embedding;
pub mod gateway;
pub mod otlp;
#[cfg(test)]
mod pipelines;
pub mod running;

use std::path::PathBuf;

use xtask_common::hash;

use crate::cached;

/// The collector's version. The manifest pins it too.
pub const VERSION: &str = "0.152.0";
/// The list of the collector's components.
const MANIFEST: &str = include_str!("../../collector/manifest.yaml");

/// The options of `cargo xtask collector`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print the binary's path alone, for scripts.
    #[arg(long)]
    print_path: bool,
}

/// Builds the collector if the cache lacks it, and prints its path.
pub fn command(arguments: &Arguments) -> anyhow::Result<()> {
    let path = path()?;
    if arguments.print_path {
        println!("{}", path.display());
    } else {
        println!("OpenTelemetry Collector {}: {}", VERSION, path.display());
    }
    Ok(())
}

/// Returns the path of the collector's binary in the cache, and builds the binary if it is missing. It is static, so it runs in an
/// image `FROM scratch`.
///
/// Each version of the manifest has its binary.
pub fn path() -> anyhow::Result<PathBuf> {
    built("contrib", MANIFEST)
}

/// Returns the path of the collector of a manifest, and builds it if the cache lacks it. The name has a hash of the inputs of the build, to
/// keep several builds of one version.
fn built(title: &str, manifest: &str) -> anyhow::Result<PathBuf> {
    let inputs = manifest.to_owned() + &build::FLAGS.join(" ");
    let name = format!("otelcol-{title}-{}", &hash::sha256(inputs.as_bytes())[..12]);
    cached::program(&format!("collector/{VERSION}"), &name, |work| build::build(manifest, VERSION, work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_pin_one_version_of_every_component() {
        for manifest in [MANIFEST, gateway::MANIFEST] {
            let pinned = manifest.lines().filter_map(|line| line.trim().strip_prefix("- gomod: "));
            assert!(manifest.lines().any(|line| line == format!("  version: {VERSION}")));
            let components: Vec<_> = pinned.filter(|module| !module.contains("/confmap/")).collect();
            assert!(components.len() > 5, "{components:?}");
            for component in components {
                assert!(component.ends_with(&format!(" v{VERSION}")), "{component} does not have version {VERSION}");
            }
        }
    }
}
