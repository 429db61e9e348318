//! The machine that a command runs on: where to keep what is expensive to make, and how to install what is missing.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

/// The checkout's root.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
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

/// Whether a program is on the path.
pub fn has(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// Installs those Debian packages that are missing, or says what to install where that cannot be done.
pub fn install(packages: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<_> = packages.iter().copied().filter(|package| !installed(package)).collect();
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
    let install = || apt(&[&["install", "-y", "-qq", "--no-install-recommends"], missing.as_slice()].concat());
    // A machine whose package lists are old or empty needs an update first; one that is up to date need not wait for it.
    install()
        .or_else(|_| apt(&["update", "-qq"]).and_then(|_| install()))
        .with_context(|| format!("cannot install {list}"))?;
    Ok(())
}

fn installed(package: &str) -> bool {
    let query = Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status}", package]).output();
    query.is_ok_and(|output| output.stdout.starts_with(b"installed"))
}
