//! The one door for developers: `cargo xtask help`.

mod bench;
mod build_ebpf;
mod collector;
mod docs;
mod e2e;
mod lint;
mod machine;
mod process;
mod run;
mod test;
mod tools;
mod truth;
mod vm;

use clap::Parser;
use sha2::{Digest as _, Sha256};

/// Developer commands of Undercurrent.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Build the sidecar and run it on this machine
    Run(run::Options),
    /// Run checks and tests; with --matrix all of them
    Test(test::Options),
    /// Build the kernel side, or check the committed object
    BuildEbpf(build_ebpf::Options),
    /// Write the generated pages of the documentation
    Docs(docs::Options),
    /// Format Rust and TOML files
    Fmt,
    /// Run a command under another kernel, in a virtual machine
    Vm(vm::Vm),
    /// Build a real OpenTelemetry Collector into the cache, for the tests that send to one
    Collector(collector::Arguments),
    /// Run the sidecar with the real programs it works with
    E2e(e2e::Arguments),
    /// Measure what the sidecar costs
    Bench(bench::Arguments),
}

fn main() -> anyhow::Result<()> {
    machine::restore_environment();
    match Command::parse() {
        Command::Run(options) => run::run(&options),
        Command::Test(options) => test::run(&options),
        Command::BuildEbpf(options) => build_ebpf::run(&options),
        Command::Docs(options) => docs::run(&options),
        Command::Fmt => lint::format(),
        Command::Vm(vm) => vm.run(),
        Command::Collector(arguments) => collector::command(&arguments),
        Command::E2e(arguments) => e2e::command(arguments),
        Command::Bench(arguments) => bench::command(arguments),
    }
}

/// Bytes as people write hashes.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of some bytes.
fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
