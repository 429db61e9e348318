//! Clean roots of Debian releases.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use tempfile::TempDir;
use xtask_common::{machine, packages};

/// Mounts the kernel's file systems in a private namespace, and runs a command in the root.
const ENTER: &str = r#"set -e
root=$1
shift
for part in proc sys dev; do mount --rbind "/$part" "$root/$part"; done
exec chroot "$root" "$@""#;

/// A root with Debian's essential packages, removed when dropped.
pub struct Root {
    folder: TempDir,
}

impl Root {
    /// Unpacks the root of a release.
    pub fn new(release: &str) -> anyhow::Result<Self> {
        let folder = TempDir::new_in(machine::cache("roots")?).context("cannot create a folder for a root")?;
        machine::output(Command::new("tar").arg("-xf").arg(archive(release)?).arg("-C").arg(folder.path()))?;
        Ok(Self { folder })
    }

    /// Returns its folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a command in the root and returns its standard output.
    pub fn output(&self, command: &[&str]) -> anyhow::Result<String> {
        let mut enter = Command::new("unshare");
        enter.args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"]).arg(self.path()).args(command);
        machine::output(enter.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C"))
    }

    /// Returns the paths of all files, without the records of package managers.
    pub fn listing(&self) -> anyhow::Result<Vec<String>> {
        let mut find = Command::new("find");
        find.args([".", "-xdev", "(", "-path", "./var/lib/dpkg", "-o", "-path", "./var/lib/rpm"]);
        find.args(["-o", "-path", "./var/log", "-o", "-path", "./var/cache", ")", "-prune", "-o", "-print"]);
        let printed = machine::output(find.current_dir(self.path()))?;
        let mut paths: Vec<_> = printed.lines().map(|path| path[1..].to_owned()).collect();
        paths.sort();
        Ok(paths)
    }
}

/// Returns the archive of a release's root in the cache, and makes it if it is missing.
fn archive(release: &str) -> anyhow::Result<PathBuf> {
    let archive = machine::cache("roots")?.join(format!("{release}.tar"));
    if !archive.is_file() {
        packages::install(&["debian-archive-keyring", "mmdebstrap"])?;
        let part = archive.with_extension("part");
        let mut make = Command::new("mmdebstrap");
        make.args(["--mode=root", "--variant=essential", "--format=tar", "--quiet", release]).arg(&part);
        machine::output(&mut make).with_context(|| format!("cannot make a root of {release}"))?;
        fs::rename(&part, &archive).with_context(|| format!("cannot move {} into the cache", part.display()))?;
    }
    Ok(archive)
}
