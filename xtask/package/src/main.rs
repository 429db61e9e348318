//! `cargo xtask package`: the static binary, the packages for Debian and RPM, and their checksums.

mod binary;
mod check;
mod files;
mod root;
mod tools;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Parser;
use files::Format;
use xtask_common::{about, artifacts, hash, machine};

/// The version of the sidecar, which the packages have too.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    #[command(about = about::PACKAGE)]
    Package(Arguments),
}

/// The options of `cargo xtask package`.
#[derive(clap::Args)]
struct Arguments {
    /// The folder for the files; `packages` in the target folder by default
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Package this static binary instead of a new one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Also install, start and remove each package in clean roots of Debian; needs root
    #[arg(long)]
    check: bool,
    /// Write the tally of the check to this file
    #[arg(long, hide = true, value_name = "FILE")]
    tally: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    machine::restore_environment();
    let Command::Package(arguments) = Command::parse();
    let output = match arguments.output {
        Some(folder) => folder,
        None => artifacts::target_directory()?.join("packages"),
    };
    let binary = arguments.binary.map_or_else(binary::build, Ok)?;
    let packages = package(&binary, &output)?;
    if !arguments.check {
        return Ok(());
    }
    let tally = check::run(&packages)?;
    if let Some(file) = arguments.tally {
        return tally.write(&file);
    }
    anyhow::ensure!(tally.failed == 0, "{} packages failed", tally.failed);
    Ok(())
}

/// The built packages.
struct Packages {
    deb: PathBuf,
    rpm: PathBuf,
}

/// Writes the binary, the packages and their checksums into a folder. Replaces the files of an earlier call.
fn package(binary: &Path, output: &Path) -> anyhow::Result<Packages> {
    fs::create_dir_all(output).with_context(|| format!("cannot create {}", output.display()))?;
    let output = output.canonicalize()?;
    let stage = tempfile::tempdir().context("cannot create a folder for the packages' files")?;
    files::stage(binary, stage.path())?;
    let names = [
        format!("undercurrent-{VERSION}-{}", binary::TARGET),
        format!("undercurrent_{VERSION}-1_amd64.deb"),
        format!("undercurrent-{VERSION}-1.x86_64.rpm"),
    ];
    let [program, deb, rpm] = names.each_ref().map(|name| output.join(name));
    fs::copy(stage.path().join("undercurrent"), &program)
        .with_context(|| format!("cannot write {}", program.display()))?;
    tools::package(Format::Deb, stage.path(), &deb)?;
    tools::package(Format::Rpm, stage.path(), &rpm)?;
    let mut sums = String::new();
    for name in &names {
        let content = fs::read(output.join(name)).with_context(|| format!("cannot read {name}"))?;
        sums.push_str(&format!("{}  {name}\n", hash::sha256(&content)));
    }
    fs::write(output.join("SHA256SUMS"), sums).context("cannot write SHA256SUMS")?;
    println!("{}:\n{}", output.display(), names.join("\n"));
    Ok(Packages { deb, rpm })
}
