//! Developer tools that are installed as binaries, pinned by hash in `xtask/common/tools.txt`.

use std::{fs, path::PathBuf, process::Command};

use anyhow::Context as _;

use crate::{hash, machine, packages};

/// Returns the path of a tool that `tools.txt` names, and installs it into the cache if it is missing.
pub fn path(program: &str) -> anyhow::Result<PathBuf> {
    let list = machine::workspace().join("xtask/common/tools.txt");
    let pins = fs::read(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let version = &hash::sha256(&pins)[..12];
    let folder = machine::cache("tools")?.join(version);
    let tool = folder.join("bin").join(program);
    if tool.is_file() {
        return Ok(tool);
    }
    // Debian packages the module venv separately from Python.
    let environment = || machine::output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
    environment()
        .or_else(|_| packages::install(&["python3-venv"]).and_then(|()| environment()))
        .context("cannot create a Python environment for the tools: install python3 with its module venv")?;
    let mut install = Command::new(folder.join("bin/pip"));
    install.args(["install", "--quiet", "--require-hashes", "--only-binary", ":all:", "--requirement"]).arg(&list);
    machine::output(&mut install).with_context(|| {
        format!("cannot install the tools that {} names: is the package index reachable?", list.display())
    })?;
    Ok(tool)
}
