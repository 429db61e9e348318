//! A toolchain for the kernel side and its arguments. The output must not depend on the machine or the working directory.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use cargo_metadata::MetadataCommand;
use serde::{Deserialize, Serialize};
use xtask_common::machine;

use super::{btf, lock, object};

/// The ways to build the kernel side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The reference: Debian's packages, and bpf-linker in the cache.
    Debian,
    /// rustup's nightly toolchain, which compiles `core` from source.
    Nightly,
}

/// A complete toolchain.
pub struct Builder {
    /// The kind of toolchain.
    pub kind: Kind,
    /// Version of each component that affects the object.
    pub versions: BTreeMap<String, String>,
    /// The linker.
    pub linker: PathBuf,
    /// `llvm-strip`.
    pub strip: PathBuf,
}

/// Arguments of cargo that select a binary of the package.
pub const fn target(binary: &str) -> [&str; 10] {
    [
        "--package",
        lock::PACKAGE,
        "--bin",
        binary,
        "--features",
        "programs",
        "--target",
        "bpfel-unknown-none",
        "--profile",
        "ebpf",
    ]
}

/// Flags of the compiler. The architecture selects the register layout that kprobes read.
pub const FLAGS: [&str; 5] = [
    "-Ctarget-cpu=v2",
    "-Cdebuginfo=2",
    "-Clink-arg=--btf",
    "-Clink-arg=--disable-memory-builtins",
    "--cfg=bpf_target_arch=\"x86_64\"",
];

/// Prefixes of the caller's variables that would affect the compiler.
const FOREIGN: [&str; 11] = [
    "CARGO_BUILD_",
    "CARGO_ENCODED_",
    "CARGO_INCREMENTAL",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "LD_LIBRARY_PATH",
    "RUSTC",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];

impl Builder {
    /// Builds a binary of the package into a folder and returns the stripped object.
    pub fn build(&self, binary: &str, folder: &Path) -> anyhow::Result<Vec<u8>> {
        let mut flags = FLAGS.map(str::to_owned).to_vec();
        flags.extend(self.remaps()?);
        let mut command = self.cargo(["build", "--quiet", "--locked"]);
        command.args(target(binary)).arg("--target-dir").arg(folder).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        if self.kind == Kind::Nightly {
            command.arg("-Zbuild-std=core");
        }
        machine::run(&mut command)?;
        let mut bytes = object::stripped(&self.strip, &folder.join("bpfel-unknown-none/ebpf").join(binary))?;
        btf::sort_forward_declarations(&mut bytes)?;
        for built_in in [machine::workspace(), folder] {
            object::refuse_path(&bytes, built_in)?;
        }
        env::home_dir().map_or(Ok(()), |home| object::refuse_path(&bytes, &home))?;
        Ok(bytes)
    }

    /// Returns a call of the toolchain's cargo in the workspace, without the caller's settings.
    fn cargo(&self, arguments: [&str; 3]) -> Command {
        let mut command = match self.kind {
            Kind::Debian => Command::new("/usr/bin/cargo"),
            Kind::Nightly => Command::new("rustup"),
        };
        for (name, _) in env::vars_os() {
            let foreign =
                name.to_str().is_some_and(|name| name == "CARGO" || FOREIGN.iter().any(|f| name.starts_with(f)));
            if foreign {
                command.env_remove(name);
            }
        }
        // An empty wrapper overrides one in the user's configuration.
        command.env("RUSTC_WRAPPER", "").env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker);
        match self.kind {
            // A stable compiler accepts the unstable parts of `core` that BPF needs only with RUSTC_BOOTSTRAP.
            Kind::Debian => command.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1"),
            Kind::Nightly => command.args(["run", "nightly", "cargo"]),
        };
        command.args(arguments).current_dir(machine::workspace());
        command
    }

    /// Returns flags that remove this machine's folders from the names of source files, which BTF's line information contains.
    fn remaps(&self) -> anyhow::Result<Vec<String>> {
        let mut command = self.cargo(["metadata", "--locked", "--format-version=1"]);
        command.args(["--all-features", "--filter-platform", "bpfel-unknown-none"]);
        let metadata =
            MetadataCommand::parse(machine::output(&mut command)?).context("cannot read cargo's metadata")?;
        let lock =
            std::fs::read_to_string(machine::workspace().join("Cargo.lock")).context("cannot read Cargo.lock")?;
        let mut remaps = vec![remap(machine::workspace(), "undercurrent")?];
        for package in lock::closure(&lock)? {
            let place = metadata
                .packages
                .iter()
                .find(|p| p.name.as_str() == package.name && p.version.to_string() == package.version);
            // Some locked packages are not for this target.
            let Some(folder) = place.and_then(|p| p.manifest_path.parent()) else { continue };
            if package.checksum.is_some() {
                remaps.push(remap(folder.as_std_path(), &format!("{}-{}", package.name, package.version))?);
            }
        }
        if self.kind == Kind::Nightly {
            let sysroot = machine::output(Command::new("rustup").args(["run", "nightly", "rustc", "--print=sysroot"]))?;
            remaps.push(remap(Path::new(sysroot.trim()), "rust")?);
        }
        Ok(remaps)
    }
}

fn remap(folder: &Path, name: &str) -> anyhow::Result<String> {
    let Some(folder) = folder.to_str() else { bail!("{folder:?} is not UTF-8, so the compiler cannot remap it") };
    Ok(format!("--remap-path-prefix={folder}={name}"))
}
