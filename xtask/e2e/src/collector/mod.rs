//! `cargo xtask collector`: a real OpenTelemetry Collector, built from its Go modules and kept in the cache.

mod build;
pub mod embedding;
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
    let name = format!("otelcol-contrib-{}", fingerprint());
    cached::program(&format!("collector/{VERSION}"), &name, |work| build::build(MANIFEST, VERSION, work))
}

/// A hash of the inputs of the build, to keep several builds of one version.
fn fingerprint() -> String {
    hash::sha256((MANIFEST.to_owned() + &build::FLAGS.join(" ")).as_bytes())[..12].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_pins_one_version_of_every_component() {
        let pinned = MANIFEST.lines().filter_map(|line| line.trim().strip_prefix("- gomod: "));
        assert!(MANIFEST.lines().any(|line| line == format!("  version: {VERSION}")));
        let components: Vec<_> = pinned.filter(|module| !module.contains("/confmap/")).collect();
        assert!(components.len() > 5, "{components:?}");
        for component in components {
            assert!(component.ends_with(&format!(" v{}", VERSION)), "{component} does not have version {}", VERSION);
        }
    }
}
