//! The command line for developers: `cargo xtask help`.
//!
//! This package holds only `cargo xtask run`. Every other command is compiled on first use, by `cargo run` of its package.

mod run;

use std::{env, ffi::OsString, iter, os::unix::process::CommandExt as _};

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser};
use xtask_common::{about, cargo, machine};

/// Developer commands of Undercurrent.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
enum Command {
    /// Build the sidecar and run it on this machine
    Run(run::Options),
    #[command(about = about::TEST)]
    Test(Forwarded),
    #[command(about = about::BUILD_EBPF)]
    BuildEbpf(Forwarded),
    #[command(about = about::DOCS)]
    Docs(Forwarded),
    #[command(about = about::FMT)]
    Fmt(Forwarded),
    #[command(about = about::VM)]
    Vm(Forwarded),
    #[command(about = about::COLLECTOR)]
    Collector(Forwarded),
    #[command(about = about::E2E)]
    E2e(Forwarded),
    #[command(about = about::BENCH)]
    Bench(Forwarded),
    #[command(about = about::PACKAGE)]
    Package(Forwarded),
    /// Print this message or the help of the given subcommand(s)
    Help { subcommands: Vec<OsString> },
}

/// Arguments that the command's package parses.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
struct Forwarded {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

fn main() -> anyhow::Result<()> {
    machine::restore_environment();
    run(env::args_os().collect())
}

fn run(arguments: Vec<OsString>) -> anyhow::Result<()> {
    match Command::parse_from(&arguments) {
        Command::Run(options) => run::run(&options),
        Command::Test(_) | Command::Docs(_) | Command::Fmt(_) => forward("xtask-test", &arguments),
        Command::BuildEbpf(_) => forward("xtask-build-ebpf", &arguments),
        Command::Vm(_) => forward("xtask-vm", &arguments),
        Command::Collector(_) | Command::E2e(_) => forward("xtask-e2e", &arguments),
        Command::Bench(_) => forward("xtask-bench", &arguments),
        Command::Package(_) => forward("xtask-package", &arguments),
        Command::Help { subcommands } if subcommands.is_empty() => Ok(Command::command().print_help()?),
        Command::Help { subcommands } => {
            run(iter::once("cargo xtask".into()).chain(subcommands).chain(iter::once("--help".into())).collect())
        }
    }
}

/// Replaces this process with a package's program, so signals and the exit status belong to the program.
fn forward(package: &str, arguments: &[OsString]) -> anyhow::Result<()> {
    let mut command = cargo::run(package, "xtask", &[]);
    command.args(arguments.iter().skip(1));
    Err(command.exec()).with_context(|| format!("cannot start {command:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_other_packages_are_accepted() {
        for arguments in
            [&["vm", "--kernel", "6.12", "--", "sh", "-c", "true"][..], &["test", "--help"], &["e2e", "-h"]]
        {
            assert!(Command::try_parse_from(iter::once(&"cargo xtask").chain(arguments)).is_ok(), "{arguments:?}");
        }
        assert!(Command::try_parse_from(["cargo xtask", "unknown"]).is_err());
    }
}
