//! `cargo xtask build-ebpf`: the kernel side, built, checked and recorded.
//!
//! The object is committed so that users need stable Rust alone. It is a binary that runs as root's code in the kernel,
//! so anyone must be able to make the same bytes again: one builder is the reference, and what it was is written beside
//! the object.

mod btf;
mod builder;
mod object;
mod record;
mod sources;
mod toolchain;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, bail, ensure};

use self::{builder::Kind, record::Record};
use crate::{machine, test::Tally};

/// Options of `cargo xtask build-ebpf`.
#[derive(clap::Args)]
pub struct Options {
    /// Build nothing into the checkout: see whether the committed object is what its sources give
    #[arg(long)]
    check: bool,
    /// Install the reference builder first: Debian's packages, and bpf-linker in the cache
    #[arg(long)]
    install: bool,
}

/// How far the committed object could be checked.
enum Checked {
    /// The reference builder made the same bytes.
    Rebuilt,
    /// The sources are those it was built from; it was not rebuilt, for this reason.
    SourcesOnly(String),
}

fn object_path() -> PathBuf {
    machine::workspace().join("receiver/ebpf/undercurrent.bpf.o")
}

/// Builds or checks the committed object.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if options.install {
        toolchain::install()?;
    }
    if !options.check {
        return build();
    }
    match check()? {
        Checked::Rebuilt => println!("{} is what its sources give: rebuilt, the same bytes", object_path().display()),
        Checked::SourcesOnly(reason) => println!("{} was built from these sources; {reason}", object_path().display()),
    }
    Ok(())
}

/// The step of `cargo xtask test`. It installs the reference builder where that can be done without asking.
pub fn step() -> anyhow::Result<Tally> {
    let installed = if machine::is_root() && machine::has("apt-get") { toolchain::install() } else { Ok(()) };
    Ok(match (check()?, installed) {
        (Checked::Rebuilt, _) => Tally::passed(2),
        (Checked::SourcesOnly(reason), Ok(())) => Tally::passed(1).and_skipped(reason),
        (Checked::SourcesOnly(reason), Err(error)) => Tally::passed(1).and_skipped(format!("{reason} ({error:#})")),
    })
}

fn build() -> anyhow::Result<()> {
    let builder = toolchain::find()?;
    let bytes = builder.build(&machine::target_directory()?.join("ebpf"))?;
    let summary = object::inspect(&bytes)?;
    let path = object_path();
    write(&path, &bytes)?;
    let record = Record::new(&bytes, sources::hash()?, &builder);
    write(&record::path(), record.to_text()?.as_bytes())?;
    println!("{}: {summary}", path.display());
    if builder.kind != Kind::Debian {
        println!(
            "Built with rustup's nightly: good for trying it, but the committed object comes from the reference builder"
        );
    }
    Ok(())
}

fn check() -> anyhow::Result<Checked> {
    let path = object_path();
    let committed = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let record = Record::read()?;
    let remedy = "run `cargo xtask build-ebpf` and commit what it writes";
    ensure!(record.object == crate::sha256(&committed), "{} is not the object on record: {remedy}", path.display());
    ensure!(
        record.sources == sources::hash()?,
        "the kernel side's sources are not those that {} was built from: {remedy}",
        path.display()
    );
    ensure!(record.builder.kind == Kind::Debian, "{} is not from the reference builder: {remedy}", path.display());
    object::inspect(&committed)?;

    let Some(builder) = toolchain::debian()? else {
        return Ok(Checked::SourcesOnly("not rebuilt: the reference builder is not on this machine".into()));
    };
    if let Some(difference) = record.builder.difference(&builder.versions) {
        return Ok(Checked::SourcesOnly(format!("not rebuilt: {difference}")));
    }
    let folder = tempfile::tempdir().context("cannot make a folder to build in")?;
    let rebuilt = builder.build(folder.path())?;
    if rebuilt != committed {
        let other = machine::target_directory()?.join("rebuilt.bpf.o");
        write(&other, &rebuilt)?;
        bail!("{} is not what its sources give ({} is): {remedy}", path.display(), other.display());
    }
    Ok(Checked::Rebuilt)
}

fn write(path: &PathBuf, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().context("a file has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
