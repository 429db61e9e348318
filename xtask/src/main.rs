//! The one door for developers: `cargo xtask help`.

mod build_ebpf;
mod lint;
mod machine;
mod run;
mod test;
mod tools;
mod vm;

use clap::Parser;
use sha2::{Digest as _, Sha256};

/// Developer commands of Undercurrent.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Build the sidecar and run it on this machine
    Run(run::Options),
    /// Run every check and test
    Test(test::Options),
    /// Build the kernel side, or check the committed object
    BuildEbpf(build_ebpf::Options),
    /// Format Rust and TOML files
    Fmt,
    /// Run a command under another kernel, in a virtual machine
    Vm(vm::Vm),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Run(options) => run::run(&options),
        Command::Test(options) => test::run(&options),
        Command::BuildEbpf(options) => build_ebpf::run(&options),
        Command::Fmt => lint::format(),
        Command::Vm(vm) => vm.run(),
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
