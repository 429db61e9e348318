//! Helm, built from its Go module and kept in the cache.

use crate::{go::Version, module::GoModule};

/// Helm, which renders charts.
pub const HELM: GoModule = GoModule {
    title: "Helm",
    binary: "helm",
    version: "3.20.2",
    module: "helm.sh/helm/v3",
    go_mod: include_str!("../helm/go.mod"),
    go_sum: include_str!("../helm/go.sum"),
    build: &["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"],
    package: "./cmd/helm",
    oldest_go: Version(1, 25),
    print_version: "version",
};
