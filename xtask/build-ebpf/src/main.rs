//! `cargo xtask build-ebpf`: builds, checks and records the BPF objects of the kernel side.
//!
//! Objects are committed so that users need only stable Rust. They run in the kernel with root's privileges, so anyone must be
//! able to reproduce their bytes. One builder is the reference; a record next to each object names its versions.

mod btf;
mod builder;
mod lock;
mod object;
mod record;
mod sources;
mod toolchain;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use tempfile::TempDir;
use xtask_common::{about, artifacts, hash, machine, tally::Tally};

use self::{
    builder::{Builder, Kind},
    record::Record,
};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    #[command(about = about::BUILD_EBPF)]
    BuildEbpf(Options),
}

/// Options of `cargo xtask build-ebpf`.
#[derive(clap::Args)]
struct Options {
    /// Build nothing into the checkout: see whether the committed objects are what their sources give
    #[arg(long)]
    check: bool,
    /// Install the reference builder first: Debian's packages, and bpf-linker in the cache
    #[arg(long)]
    install: bool,
    /// Check, and write the tally to this file
    #[arg(long, hide = true, value_name = "FILE")]
    tally: Option<PathBuf>,
}

/// A committed object that is built from the package.
struct Artifact {
    /// The package's binary.
    binary: &'static str,
    /// Path of the object relative to the workspace. The record is next to the object.
    path: &'static str,
}

/// The sidecar's programs, empty programs as a baseline for benchmarks, and two objects for tests: `resolution` computes the
/// histogram bucket of a duration, `injection` delivers packets.
const ARTIFACTS: [Artifact; 4] = [
    Artifact { binary: "undercurrent", path: "receiver/ebpf/undercurrent.bpf.o" },
    Artifact { binary: "baseline", path: "receiver/ebpf/baseline.bpf.o" },
    Artifact { binary: "resolution", path: "receiver/ebpf/resolution.bpf.o" },
    Artifact { binary: "injection", path: "receiver/ebpf/injection.bpf.o" },
];

/// The result of a check of a committed object.
enum Checked {
    /// The reference builder reproduced the bytes.
    Rebuilt,
    /// The hash of the sources matches the record. Contains the reason why the object was not rebuilt.
    SourcesOnly(String),
}

fn main() -> anyhow::Result<()> {
    machine::restore_environment();
    let Command::BuildEbpf(options) = Command::parse();
    match &options.tally {
        Some(file) => step()?.write(file),
        None => run(&options),
    }
}

/// Builds or checks the committed objects.
fn run(options: &Options) -> anyhow::Result<()> {
    if options.install {
        toolchain::install()?;
    }
    if !options.check {
        let builder = toolchain::find()?;
        return ARTIFACTS.iter().try_for_each(|artifact| artifact.build(&builder));
    }
    let folder = build_folder()?;
    for artifact in &ARTIFACTS {
        let path = artifact.object();
        match artifact.check(folder.path())? {
            Checked::Rebuilt => println!("{} matches its sources: a rebuild gave identical bytes", path.display()),
            Checked::SourcesOnly(reason) => println!("{} has the source hash on record; {reason}", path.display()),
        }
    }
    Ok(())
}

/// Checks the objects for `cargo xtask test`. As root on a machine with apt, installs the reference builder first.
fn step() -> anyhow::Result<Tally> {
    let installed = if machine::is_root() && machine::has("apt-get") { toolchain::install() } else { Ok(()) };
    let mut tally = Tally::default();
    let folder = build_folder()?;
    for artifact in &ARTIFACTS {
        tally.passed += 1;
        match (artifact.check(folder.path())?, &installed) {
            (Checked::Rebuilt, _) => tally.passed += 1,
            (Checked::SourcesOnly(reason), Ok(())) => tally = tally.and_skipped(reason),
            (Checked::SourcesOnly(reason), Err(error)) => tally = tally.and_skipped(format!("{reason} ({error:#})")),
        }
    }
    Ok(tally)
}

/// Creates an empty folder for the rebuilds of one check. The objects share their dependencies, but no earlier build.
fn build_folder() -> anyhow::Result<TempDir> {
    tempfile::tempdir().context("cannot create a folder to build in")
}

impl Artifact {
    fn object(&self) -> PathBuf {
        machine::workspace().join(self.path)
    }

    fn record(&self) -> PathBuf {
        self.object().with_extension("toml")
    }

    fn build(&self, builder: &Builder) -> anyhow::Result<()> {
        let bytes = builder.build(self.binary, &artifacts::target_directory()?.join("ebpf"))?;
        let summary = object::inspect(&bytes)?;
        let path = self.object();
        write(&path, &bytes)?;
        let record = Record::new(&bytes, sources::hash(self.binary)?, builder)?;
        write(&self.record(), record.to_text(&format!("{}.bpf.o", self.binary))?.as_bytes())?;
        println!("{}: {summary}", path.display());
        if builder.kind != Kind::Debian {
            println!(
                "Built with rustup's nightly, for experiments only: the committed object comes from the reference builder"
            );
        }
        Ok(())
    }

    fn check(&self, folder: &Path) -> anyhow::Result<Checked> {
        let path = self.object();
        let committed = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        object::inspect(&committed)?;
        let record = Record::read(&self.record())?;
        let remedy = "run `cargo xtask build-ebpf` and commit the files that it writes";
        ensure!(
            record.object == hash::sha256(&committed),
            "the hash of {} is not the one on record: {remedy}",
            path.display()
        );
        ensure!(
            record.sources == sources::hash(self.binary)?,
            "the sources of the kernel side changed since {} was built: {remedy}",
            path.display()
        );
        ensure!(
            record.functions == object::functions(&committed)?,
            "the functions in {} are not those on record: {remedy}",
            path.display()
        );
        ensure!(record.builder.kind == Kind::Debian, "{} is not from the reference builder: {remedy}", path.display());
        let Some(builder) = toolchain::debian()? else {
            return Ok(Checked::SourcesOnly("not rebuilt: the reference builder is not on this machine".into()));
        };
        if let Some(difference) = record.builder.difference(&builder.versions) {
            return Ok(Checked::SourcesOnly(format!("not rebuilt: {difference}")));
        }
        let rebuilt = builder.build(self.binary, folder)?;
        if rebuilt != committed {
            let other = artifacts::target_directory()?.join(format!("rebuilt-{}.bpf.o", self.binary));
            write(&other, &rebuilt)?;
            bail!("a rebuild of {} gave other bytes (see {}): {remedy}", path.display(), other.display());
        }
        Ok(Checked::Rebuilt)
    }
}

fn write(path: &PathBuf, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().context("the path has no parent folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
