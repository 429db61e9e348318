//! Finds and installs toolchains for the kernel side.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use xtask_common::{cargo, machine, packages};

use super::builder::{Builder, Kind};

/// Packages of Debian 12. The first ones affect the object; the others are needed to build bpf-linker. LLVM copies the lines of source
/// files that exist into BTF's line information, so the sources of `core` must be installed.
const PACKAGES: [&str; 8] = [
    "rustc-web",
    "cargo-web",
    "libstd-rust-web-dev-bpf",
    "rust-web-src",
    "llvm-22",
    "llvm-22-dev",
    "libzstd-dev",
    "zlib1g-dev",
];
/// Number of [`PACKAGES`] in the record.
const RECORDED: usize = 5;
const LLVM: &str = "/usr/lib/llvm-22";
const LINKER_VERSION: &str = "0.13.0";

/// Returns the reference toolchain if it is complete, else rustup's nightly.
pub fn find() -> anyhow::Result<Builder> {
    if let Some(builder) = debian()? {
        return Ok(builder);
    }
    nightly()?.map_or_else(|missing| bail!(advice(&missing)), Ok)
}

/// Returns Debian's toolchain if all its components are installed.
pub fn debian() -> anyhow::Result<Option<Builder>> {
    let linker = linker_root()?.join("bin/bpf-linker");
    let mut versions = BTreeMap::from([("bpf-linker".to_owned(), LINKER_VERSION.to_owned())]);
    for package in &PACKAGES[..RECORDED] {
        let Some(version) = packages::version(package) else { return Ok(None) };
        versions.insert((*package).to_owned(), version);
    }
    Ok(linker.is_file().then(|| Builder {
        kind: Kind::Debian,
        versions,
        linker,
        strip: Path::new(LLVM).join("bin/llvm-strip"),
    }))
}

/// Installs Debian's packages, and bpf-linker into the cache.
pub fn install() -> anyhow::Result<()> {
    packages::install(&PACKAGES)?;
    let root = linker_root()?;
    if root.join("bin/bpf-linker").is_file() {
        return Ok(());
    }
    eprintln!("building bpf-linker {LINKER_VERSION} (about a minute)");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([Path::new(LLVM).join("bin")].into_iter().chain(std::env::split_paths(&path)))?;
    let mut command = cargo::command();
    command.args(["install", "bpf-linker", "--version", LINKER_VERSION, "--locked", "--quiet"]);
    command.args(["--no-default-features", "--features", "llvm-22", "--root"]).arg(&root);
    command.env("LLVM_PREFIX", LLVM).env("PATH", path);
    machine::output(&mut command).context("cannot build bpf-linker")?;
    Ok(())
}

/// Returns the folder of bpf-linker. The path contains the version, so an update does not reuse an old build.
fn linker_root() -> anyhow::Result<PathBuf> {
    Ok(machine::cache("bpf-linker")?.join(LINKER_VERSION))
}

/// Returns rustup's nightly toolchain, or the names of its missing components.
fn nightly() -> anyhow::Result<Result<Builder, Vec<&'static str>>> {
    let rustc = |argument| {
        let output = Command::new("rustup").args(["run", "nightly", "rustc", argument]).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let (Some(sysroot), Some(version)) = (rustc("--print=sysroot"), rustc("--version")) else {
        return Ok(Err(vec!["rustup's nightly toolchain"]));
    };
    let sysroot = Path::new(&sysroot);
    let linker = machine::find("bpf-linker");
    let strip = strip(sysroot);
    let mut missing = Vec::new();
    if !sysroot.join("lib/rustlib/src/rust/library/core").is_dir() {
        missing.push("its component rust-src");
    }
    if strip.is_none() {
        missing.push("llvm-strip (its component llvm-tools)");
    }
    if linker.is_none() {
        missing.push("bpf-linker");
    }
    let (Some(linker), Some(strip), true) = (linker, strip, missing.is_empty()) else { return Ok(Err(missing)) };
    let linker_version = machine::output(Command::new(&linker).arg("--version"))?;
    let versions = [("rustc", version.as_str()), ("bpf-linker", linker_version.trim())];
    Ok(Ok(Builder {
        kind: Kind::Nightly,
        versions: versions.map(|(part, version)| (part.to_owned(), version.to_owned())).into(),
        linker,
        strip,
    }))
}

/// Returns the path of `llvm-strip`: from the toolchain, from `PATH`, or a versioned one of the distribution.
fn strip(sysroot: &Path) -> Option<PathBuf> {
    let below = |folder: &str, rest: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().join(rest)).filter(|path| path.is_file()).max()
    };
    let rustlib = sysroot.join("lib/rustlib");
    below(rustlib.to_str()?, "bin/llvm-strip")
        .or_else(|| machine::find("llvm-strip"))
        .or_else(|| below("/usr/lib", "bin/llvm-strip"))
}

fn advice(missing: &[&str]) -> String {
    let debian = PACKAGES.iter().filter(|package| packages::version(package).is_none()).copied();
    let debian: Vec<_> = debian.chain(["bpf-linker in the cache"]).collect();
    format!(
        "this machine has no toolchain for the kernel side. Install one of these:\n\
         \n  Debian 12, the reference (missing: {}):\n    cargo xtask build-ebpf --install\n\
         \n  rustup (missing: {}):\n    rustup toolchain install nightly --component rust-src,llvm-tools\n    \
         cargo install bpf-linker\n\
         \nOnly changes to receiver-ebpf/ need a builder: without one, builds use the committed object.",
        debian.join(", "),
        missing.join(", ")
    )
}
