//! The machine that a command runs on: where to keep what is expensive to make, and how to install what is missing.

use std::{
    env,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// The variable that passes the checkout's path to child processes of `cargo xtask`.
const WORKSPACE: &str = "XTASK_WORKSPACE";

/// The checkout's root: the one that cargo was called in, since checkouts may share a folder of built programs.
pub fn workspace() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        env::var_os(WORKSPACE).map(PathBuf::from).unwrap_or_else(|| {
            let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
            Path::new(&package).parent().unwrap_or(Path::new(".")).to_owned()
        })
    });
    &ROOT
}

/// A folder outside the checkout for what is expensive to make (kernels, collectors, tools), kept between runs:
/// `$UNDERCURRENT_CACHE`, else `undercurrent` below `$XDG_CACHE_HOME` or `~/.cache`. Everything works with it empty.
pub fn cache(part: &str) -> anyhow::Result<PathBuf> {
    let root = env::var_os("UNDERCURRENT_CACHE").map(PathBuf::from).or_else(|| {
        let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        Some(base.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?.join("undercurrent"))
    });
    let path = root.context("neither UNDERCURRENT_CACHE, XDG_CACHE_HOME nor HOME is set: set one of them")?.join(part);
    std::fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}

/// Runs a command to its end; a failure names the command.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// Runs a command to its end and returns what it printed; a failure names the command and its complaint.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed something that is not UTF-8"))
}

/// A target of a package: its kind (`bin`, `test`, `bench`) and its name.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As in cargo's messages.
    pub kind: &'static str,
    /// The target's name.
    pub name: &'static str,
}

/// Runs a cargo build with JSON messages and returns the executable of a target.
pub fn built(command: &mut Command, target: Target) -> anyhow::Result<PathBuf> {
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let printed = output(command)?;
    let messages = printed.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let mut executables = messages.filter(|artifact| artifact.is(target)).filter_map(|artifact| artifact.executable);
    executables.next().with_context(|| format!("{command:?} made no executable of {target:?}"))
}

/// cargo's message about something that it built.
#[derive(Deserialize)]
struct Artifact {
    target: ArtifactTarget,
    profile: ArtifactProfile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct ArtifactTarget {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct ArtifactProfile {
    test: bool,
}

impl Artifact {
    /// True for the target's own executable, false for a binary's unit tests, which cargo reports with the same kind and name.
    fn is(&self, target: Target) -> bool {
        let unit_tests = target.kind == "bin" && self.profile.test;
        !unit_tests && self.target.name == target.name && self.target.kind.iter().any(|kind| kind == target.kind)
    }
}

/// Where a program is on the path.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Whether a program is on the path.
pub fn has(program: &str) -> bool {
    find(program).is_some()
}

/// Whether this process may do as it likes.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// This program, also after cargo has built another in its place.
pub const MYSELF: &str = "/proc/self/exe";

/// Variables that cargo sets for the program it runs, by prefix. Build scripts that watch one of them (ring's does) would run
/// again, and everything above their crates be built again, whenever a build changes between `cargo` and `cargo xtask`.
const SET_BY_CARGO: [&str; 5] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"];

/// Removes the variables that cargo added to the user's environment.
pub fn restore_environment() {
    // One of the variables names the checkout.
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

/// A call of the cargo that runs this command, else the path's, in the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

/// Where cargo builds the workspace, by its own word: flags, variables and configuration files have a say in it.
pub fn target_directory() -> anyhow::Result<PathBuf> {
    #[derive(serde::Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--format-version=1"]);
    let metadata: Metadata =
        serde_json::from_str(&output(&mut command)?).context("cargo metadata printed something else")?;
    Ok(metadata.target_directory)
}

/// Installs those Debian packages that are missing, or says what to install where that cannot be done.
pub fn install(packages: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<_> = packages.iter().copied().filter(|package| package_version(package).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !has("apt-get") {
        bail!("missing on this machine: {list}. Install them (these are Debian's names) and run the command again");
    }
    eprintln!("installing {list}");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        output(&mut command)
    };
    // Nothing that somebody installed may have to go for it.
    let options = ["install", "-y", "-qq", "--no-install-recommends", "--no-remove"];
    let install = || apt(&[options.as_slice(), missing.as_slice()].concat());
    // A machine whose package lists are old or empty needs an update first; one that is up to date need not wait for it.
    install()
        .or_else(|_| apt(&["update", "-qq"]).and_then(|_| install()))
        .with_context(|| format!("cannot install {list}"))?;
    Ok(())
}

/// The version of an installed Debian package.
pub fn package_version(package: &str) -> Option<String> {
    let query =
        Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status} ${Version}", package]).output().ok()?;
    Some(String::from_utf8(query.stdout).ok()?.strip_prefix("installed ")?.to_owned())
}
