//! `cargo xtask build-ebpf`: the kernel side, built, checked and recorded.
//!
//! Objects are committed so that users need stable Rust alone. They run as root's code in the kernel, so anyone must be
//! able to make the same bytes again: one builder is the reference, and what it was is written beside each object.

mod btf;
mod builder;
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
use xtask_common::{cargo, hash, machine, tally::Tally};

use self::{
    builder::{Builder, Kind},
    record::Record,
};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Build the kernel side, or check the committed object
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

/// An object that is built from the package and committed.
struct Artifact {
    /// The package's binary.
    binary: &'static str,
    /// The object, relative to the workspace; its record lies beside it.
    path: &'static str,
}

/// The product's programs, the empty ones that benchmarks compare them with, those by which a test asks the product's code
/// for a duration's slot, and one by which a test has packets received.
const ARTIFACTS: [Artifact; 4] = [
    Artifact { binary: "undercurrent", path: "receiver/ebpf/undercurrent.bpf.o" },
    Artifact { binary: "baseline", path: "receiver/ebpf/baseline.bpf.o" },
    Artifact { binary: "resolution", path: "receiver/ebpf/resolution.bpf.o" },
    Artifact { binary: "injection", path: "receiver/ebpf/injection.bpf.o" },
];

/// How far a committed object could be checked.
enum Checked {
    /// The reference builder made the same bytes.
    Rebuilt,
    /// The sources are those it was built from; it was not rebuilt, for this reason.
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
            Checked::Rebuilt => println!("{} is what its sources give: rebuilt, the same bytes", path.display()),
            Checked::SourcesOnly(reason) => println!("{} was built from these sources; {reason}", path.display()),
        }
    }
    Ok(())
}

/// The step of `cargo xtask test`. It installs the reference builder where that can be done without asking.
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

/// An empty folder for the rebuilds of one check: the objects share their dependencies, and nothing of earlier builds.
fn build_folder() -> anyhow::Result<TempDir> {
    tempfile::tempdir().context("cannot make a folder to build in")
}

impl Artifact {
    fn object(&self) -> PathBuf {
        machine::workspace().join(self.path)
    }

    fn record(&self) -> PathBuf {
        self.object().with_extension("toml")
    }

    fn build(&self, builder: &Builder) -> anyhow::Result<()> {
        let bytes = builder.build(self.binary, &cargo::target_directory()?.join("ebpf"))?;
        let summary = object::inspect(&bytes)?;
        let path = self.object();
        write(&path, &bytes)?;
        let record = Record::new(&bytes, sources::hash(self.binary)?, builder)?;
        write(&self.record(), record.to_text(&format!("{}.bpf.o", self.binary))?.as_bytes())?;
        println!("{}: {summary}", path.display());
        if builder.kind != Kind::Debian {
            println!(
                "Built with rustup's nightly: good for trying it, but the committed object comes from the reference \
                 builder"
            );
        }
        Ok(())
    }

    fn check(&self, folder: &Path) -> anyhow::Result<Checked> {
        let path = self.object();
        let committed = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        object::inspect(&committed)?;
        let record = Record::read(&self.record())?;
        let remedy = "run `cargo xtask build-ebpf` and commit what it writes";
        ensure!(record.object == hash::sha256(&committed), "{} is not the object on record: {remedy}", path.display());
        ensure!(
            record.sources == sources::hash(self.binary)?,
            "the kernel side's sources are not those that {} was built from: {remedy}",
            path.display()
        );
        ensure!(
            record.functions == object::functions(&committed)?,
            "the programs of {} call other functions than its record says: {remedy}",
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
            let other = cargo::target_directory()?.join(format!("rebuilt-{}.bpf.o", self.binary));
            write(&other, &rebuilt)?;
            bail!("{} is not what its sources give ({} is): {remedy}", path.display(), other.display());
        }
        Ok(Checked::Rebuilt)
    }
}

fn write(path: &PathBuf, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().context("a file has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
