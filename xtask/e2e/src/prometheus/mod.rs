//! Prometheus, built from its Go module and kept in the cache.

pub mod running;

use crate::{go::Version, module::GoModule};

/// Prometheus, without web pages.
pub const PROMETHEUS: GoModule = program("Prometheus", "prometheus", "./cmd/prometheus");
/// The tool that tests rules.
pub const PROMTOOL: GoModule = program("promtool", "promtool", "./cmd/promtool");

/// Returns a program of Prometheus. Version 3.N.M of the program is version 0.(300+N).M of the Go module. The tags leave out service
/// discovery, which takes a third of the build.
const fn program(title: &'static str, binary: &'static str, package: &'static str) -> GoModule {
    GoModule {
        title,
        binary,
        version: "3.15.0",
        module: "github.com/prometheus/prometheus",
        go_mod: include_str!("../../prometheus/go.mod"),
        go_sum: include_str!("../../prometheus/go.sum"),
        build: &[
            "build",
            "-mod=readonly",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags=-s -w",
            "-tags=netgo,remove_all_sd,enable_dns_sd",
        ],
        package,
        oldest_go: Version(1, 26),
        print_version: "--version",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_has_the_version_of_the_program() {
        let GoModule { version, module, go_mod, go_sum, .. } = PROMETHEUS;
        let minor = version.strip_prefix("3.").and_then(|rest| rest.split_once('.'));
        let (minor, patch) = minor.expect("a version 3.N.M");
        let required = format!("{module} v0.{}.{patch}", 300 + minor.parse::<u32>().unwrap());
        assert!(go_mod.lines().any(|line| line == format!("require {required}")), "{required}");
        for line in [format!("{required} h1:"), format!("{required}/go.mod h1:")] {
            assert!(go_sum.lines().any(|sum| sum.starts_with(&line)), "go.sum lacks {line}");
        }
    }
}
