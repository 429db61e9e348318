//! Jaeger, built from its Go module and kept in the cache.

mod build;
pub mod running;

use std::path::PathBuf;

use xtask_common::hash;

use crate::cached;

/// Jaeger's version. Version 2.N of the program is version 1.(N+63) of the Go module.
pub const VERSION: &str = "2.13.0";
/// Pins the module's version and its checksums.
const GO_MOD: &str = include_str!("../../jaeger/go.mod");
const GO_SUM: &str = include_str!("../../jaeger/go.sum");

/// Returns the path of the program in the cache, and builds the program if it is missing. It is static and has no web pages.
pub fn path() -> anyhow::Result<PathBuf> {
    let inputs = [GO_MOD, GO_SUM, &build::FLAGS.join(" ")].concat();
    let name = format!("jaeger-{}", &hash::sha256(inputs.as_bytes())[..12]);
    cached::program(&format!("jaeger/{VERSION}"), &name, build::build)
}
