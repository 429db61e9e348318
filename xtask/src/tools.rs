//! Developer tools that come as ready binaries, pinned by hash in `xtask/tools.txt`.

use std::{fs, path::PathBuf, process::Command};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::machine;

/// The path of a tool that `xtask/tools.txt` names, installed into the cache where it is missing.
pub fn path(program: &str) -> anyhow::Result<PathBuf> {
    let list = machine::workspace().join("xtask/tools.txt");
    let pins = fs::read(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let version = &crate::hex(&Sha256::digest(&pins))[..12];
    let folder = machine::cache("tools")?.join(version);
    let tool = folder.join("bin").join(program);
    if tool.is_file() {
        return Ok(tool);
    }
    // Debian keeps what makes a virtual environment apart from Python itself.
    let environment = || machine::output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
    environment()
        .or_else(|_| machine::install(&["python3-venv"]).and_then(|()| environment()))
        .context("cannot make a Python environment for the checks: install python3 with its venv module")?;
    let mut install = Command::new(folder.join("bin/pip"));
    install.args(["install", "--quiet", "--require-hashes", "--only-binary", ":all:", "--requirement"]).arg(&list);
    machine::output(&mut install).with_context(|| {
        format!("cannot install the checks that {} names: is the package index reachable?", list.display())
    })?;
    Ok(tool)
}
