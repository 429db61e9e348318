//! Debian packages: versions and installation.

use std::process::Command;

use anyhow::{Context as _, bail};

use crate::machine;

/// Installs the missing ones of some Debian packages.
///
/// # Errors
/// If the machine has no apt, or the installation fails. The message lists the missing packages.
pub fn install(packages: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<_> = packages.iter().copied().filter(|package| version(package).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !machine::has("apt-get") {
        bail!(
            "missing on this machine: {list}. Install these Debian packages or their equivalents, then run this again"
        );
    }
    eprintln!("installing {list}");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        machine::output(&mut command)
    };
    // An installation must not remove packages that the user installed.
    let options = ["install", "-y", "-qq", "--no-install-recommends", "--no-remove"];
    let install = || apt(&[options.as_slice(), missing.as_slice()].concat());
    // Updating the package lists takes seconds: do it only if they are old or empty.
    install()
        .or_else(|_| apt(&["update", "-qq"]).and_then(|_| install()))
        .with_context(|| format!("cannot install {list}"))?;
    Ok(())
}

/// Returns the version of an installed Debian package, or `None` if it is not installed.
pub fn version(package: &str) -> Option<String> {
    let query =
        Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status} ${Version}", package]).output().ok()?;
    Some(String::from_utf8(query.stdout).ok()?.strip_prefix("installed ")?.to_owned())
}
