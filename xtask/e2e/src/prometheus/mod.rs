//! Prometheus, built from its Go module and kept in the cache.

mod build;
pub mod running;

use std::path::PathBuf;

use xtask_common::hash;

use crate::cached;

/// Prometheus's version. Version 3.N.M of the program is version 0.(300+N).M of the Go module.
pub const VERSION: &str = "3.15.0";
/// Pins the module's version and its checksums.
const GO_MOD: &str = include_str!("../../prometheus/go.mod");
const GO_SUM: &str = include_str!("../../prometheus/go.sum");

/// Returns the path of the program in the cache, and builds the program if it is missing. It is static and has no web pages.
pub fn path() -> anyhow::Result<PathBuf> {
    let inputs = [GO_MOD, GO_SUM, &build::FLAGS.join(" ")].concat();
    let name = format!("prometheus-{}", &hash::sha256(inputs.as_bytes())[..12]);
    cached::program(&format!("prometheus/{VERSION}"), &name, build::build)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_has_the_version_of_the_program() {
        let minor = VERSION.strip_prefix("3.").and_then(|rest| rest.split_once('.'));
        let (minor, patch) = minor.expect("a version 3.N.M");
        let required = format!("{} v0.{}.{patch}", build::MODULE, 300 + minor.parse::<u32>().unwrap());
        assert!(GO_MOD.lines().any(|line| line == format!("require {required}")), "{required}");
        for line in [format!("{required} h1:"), format!("{required}/go.mod h1:")] {
            assert!(GO_SUM.lines().any(|sum| sum.starts_with(&line)), "go.sum lacks {line}");
        }
    }
}
