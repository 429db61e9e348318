//! The checkout, the cache and the programs of this machine.

use std::{
    env,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use anyhow::{Context as _, bail};

/// The variable that passes the checkout's path to child processes of `cargo xtask`.
const WORKSPACE: &str = "XTASK_WORKSPACE";

/// Returns the root of the checkout in which cargo was called. Checkouts may share a target folder, so the path at compile
/// time can be another checkout's.
pub fn workspace() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        env::var_os(WORKSPACE).map(PathBuf::from).unwrap_or_else(|| {
            let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
            let mut parents = Path::new(&package).ancestors();
            parents.find(|folder| folder.join("Cargo.lock").is_file()).unwrap_or(Path::new(".")).to_owned()
        })
    });
    &ROOT
}

/// Returns a subfolder of the cache, and creates the folder if it is missing.
///
/// The cache keeps kernels, collectors and tools outside the checkout: in `$UNDERCURRENT_CACHE`, or in `undercurrent` below
/// `$XDG_CACHE_HOME` or `~/.cache`. Every command works with an empty cache.
pub fn cache(part: &str) -> anyhow::Result<PathBuf> {
    let root = env::var_os("UNDERCURRENT_CACHE").map(PathBuf::from).or_else(|| {
        let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        Some(base.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?.join("undercurrent"))
    });
    let path = root.context("neither UNDERCURRENT_CACHE, XDG_CACHE_HOME nor HOME is set: set one of them")?.join(part);
    std::fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}

/// Runs a command until it exits.
///
/// # Errors
/// If the command cannot start or fails. The message names the command.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// Runs a command until it exits and returns its standard output.
///
/// # Errors
/// If the command cannot start, fails, or prints bytes that are not UTF-8. The message has the command and its standard error.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of {command:?} is not UTF-8"))
}

/// Returns the path of a program in `PATH`.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// True if a program is in `PATH`.
pub fn has(program: &str) -> bool {
    find(program).is_some()
}

/// True if this process runs as root.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The program of this process, even after cargo has replaced the file.
pub const MYSELF: &str = "/proc/self/exe";

/// Prefixes of the variables that cargo sets for a program. ring's build script watches some of them: if they differed between
/// builds by `cargo` and by `cargo xtask`, ring and all its dependents would be compiled again each time.
const SET_BY_CARGO: [&str; 5] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"];

/// Removes the variables that cargo added to the environment. Must run before the process starts a thread.
pub fn restore_environment() {
    // One of the removed variables contains the checkout's path.
    let workspace = workspace();
    // SAFETY: this process has no other thread yet.
    unsafe { env::set_var(WORKSPACE, workspace) };
    for name in env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if SET_BY_CARGO.iter().any(|prefix| name.starts_with(prefix)) {
            // SAFETY: this process has no other thread yet.
            unsafe { env::remove_var(&name) };
        }
    }
}
