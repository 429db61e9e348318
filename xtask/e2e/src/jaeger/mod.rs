//! Jaeger, built from its Go module and kept in the cache.

pub mod running;

use crate::{go::Version, module::GoModule};

/// Jaeger, without web pages. Version 2.N of the program is version 1.(N+63) of the Go module.
pub const JAEGER: GoModule = GoModule {
    title: "Jaeger",
    binary: "jaeger",
    version: "2.13.0",
    module: "github.com/jaegertracing/jaeger",
    go_mod: include_str!("../../jaeger/go.mod"),
    go_sum: include_str!("../../jaeger/go.sum"),
    build: &["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"],
    package: "./cmd/jaeger",
    oldest_go: Version(1, 25),
    print_version: "version",
};
