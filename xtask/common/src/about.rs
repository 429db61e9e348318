//! One line about each command, for `cargo xtask help` and for the help of the command.

/// `cargo xtask test`
pub const TEST: &str = "Run checks and tests; with --matrix all of them";
/// `cargo xtask build-ebpf`
pub const BUILD_EBPF: &str = "Build the kernel side, or check the committed object";
/// `cargo xtask docs`
pub const DOCS: &str = "Write the generated pages of the documentation";
/// `cargo xtask fmt`
pub const FMT: &str = "Format Rust and TOML files";
/// `cargo xtask vm`
pub const VM: &str = "Run a command under another kernel, in a virtual machine";
/// `cargo xtask collector`
pub const COLLECTOR: &str = "Build a real OpenTelemetry Collector into the cache, for the tests that send to one";
/// `cargo xtask e2e`
pub const E2E: &str = "Run the sidecar with the real programs it works with";
/// `cargo xtask package`
pub const PACKAGE: &str = "Build the static binary and the packages for Debian and RPM";
/// `cargo xtask bench`
pub const BENCH: &str = "Measure what the sidecar costs";
