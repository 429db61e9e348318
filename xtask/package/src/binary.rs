//! The static binary. Its C library is musl, so it runs on distributions with any version of glibc.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use xtask_common::{
    artifacts::{self, Target},
    cargo, machine, packages,
};

/// The target of the static binary.
pub const TARGET: &str = "x86_64-unknown-linux-musl";
/// Debian's folder of musl.
const MUSL: &str = "/usr/lib/x86_64-linux-musl";
/// Packages of Debian 12: the compiler with its own source, because no package has a compiled standard library for musl, and an unwinder.
const COMPILER: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "libgcc-11-dev"];
/// The unwinder of GCC 11. Newer ones call a function of glibc 2.35 that musl lacks.
const UNWINDER: &str = "/usr/lib/gcc/x86_64-linux-gnu/11/libgcc_eh.a";
/// A linker script in place of the unwinder. A weak symbol, by which the unwinder calls these functions, links nothing from a static library.
const SCRIPT: &str = "EXTERN(pthread_getspecific pthread_key_create pthread_mutex_lock pthread_mutex_unlock pthread_once pthread_setspecific)";
/// Prefixes of the caller's variables that select another compiler.
const FOREIGN: [&str; 4] = ["CARGO", "LD_LIBRARY_PATH", "RUSTC", "RUSTUP_TOOLCHAIN"];

/// Builds the sidecar in the release profile and returns its path.
pub fn build() -> anyhow::Result<PathBuf> {
    packages::install(&["musl-tools"])?;
    let folder = artifacts::target_directory()?.join("package");
    let mut command = if has_target()? { cargo::command() } else { debian(&folder)? };
    // For the C libraries: ring and zstd.
    command.env("CC_x86_64_unknown_linux_musl", "musl-gcc");
    command.args(["build", "--release", "--locked", "--package", "undercurrent", "--target", TARGET]);
    artifacts::build(command.arg("--target-dir").arg(&folder), &Target::bin("undercurrent"))
}

/// True if rustup installed the target for the compiler of this checkout.
fn has_target() -> anyhow::Result<bool> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", TARGET]).current_dir(machine::workspace());
    Ok(Path::new(machine::output(&mut rustc)?.trim()).is_dir())
}

/// Returns a call of Debian's cargo that compiles the standard library too.
fn debian(folder: &Path) -> anyhow::Result<Command> {
    packages::install(&COMPILER)
        .with_context(|| format!("no standard library for {TARGET}: run `rustup target add {TARGET}`"))?;
    let libraries = folder.join("lib");
    fs::create_dir_all(&libraries).with_context(|| format!("cannot create {}", libraries.display()))?;
    // The standard library links an unwinder with the name of LLVM's. GCC's has the same interface.
    let script = libraries.join("libunwind.a");
    let text = format!("{SCRIPT}\nINPUT({UNWINDER})\n");
    fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
    let mut command = Command::new("/usr/bin/cargo");
    for name in env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if FOREIGN.iter().any(|prefix| name.starts_with(prefix)) && name != "CARGO_BUILD_JOBS" && name != "CARGO_HOME" {
            command.env_remove(name);
        }
    }
    // gcc finds musl's start files and libc.a in this folder. Those of `musl-gcc` cannot start a position-independent static program.
    let flags = format!("-Clink-self-contained=no -Clink-arg=-B{MUSL} -Lnative={}", libraries.display());
    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS", flags);
    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER", "gcc");
    // A stable compiler accepts `build-std` only with RUSTC_BOOTSTRAP.
    command.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1").arg("-Zbuild-std=std,panic_abort");
    command.current_dir(machine::workspace());
    Ok(command)
}
