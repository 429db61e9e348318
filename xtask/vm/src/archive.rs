//! Packages of any suite of Debian's archive. The package lists are separate from those of the system.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use xtask_common::{machine, packages};

use super::write;

/// The variable with the address of the archive, for machines without a Debian source in apt's configuration.
const MIRROR: &str = "UNDERCURRENT_DEBIAN_MIRROR";

/// The package lists of one suite.
pub struct Suite {
    name: String,
    folder: PathBuf,
}

impl Suite {
    /// Fetches the lists of a suite into a folder.
    pub fn open(name: &str, folder: PathBuf) -> anyhow::Result<Self> {
        packages::install(&["debian-archive-keyring"])?;
        for part in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(folder.join(part))
                .with_context(|| format!("cannot create {}", folder.join(part).display()))?;
        }
        let mirror = mirror(name)?;
        let source =
            format!("deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {name} main\n");
        write(&folder.join("sources.list"), source)?;
        let suite = Self { name: name.to_owned(), folder };
        machine::output(suite.apt("apt-get").args(["update", "-qq"])).with_context(|| {
            format!(
                "cannot fetch the package lists of {name}: is {mirror} reachable? Set {MIRROR} to use another archive"
            )
        })?;
        Ok(suite)
    }

    /// Returns the names of packages with a prefix, one per line.
    pub fn names(&self, prefix: &str) -> anyhow::Result<String> {
        machine::output(self.apt("apt-cache").args(["pkgnames", prefix]))
    }

    /// Downloads packages and unpacks all of them into one folder.
    pub fn unpack(&self, packages: &[String], folder: &Path) -> anyhow::Result<()> {
        let beside = folder.parent().unwrap_or(folder);
        let downloads = tempfile::tempdir_in(beside).context("cannot create a folder for downloads")?;
        machine::output(self.apt("apt-get").args(["download", "-qq"]).args(packages).current_dir(&downloads))
            .with_context(|| format!("cannot download {} from {}", packages.join(", "), self.name))?;
        for file in std::fs::read_dir(&downloads)? {
            machine::output(Command::new("dpkg-deb").arg("-x").arg(file?.path()).arg(folder))?;
        }
        Ok(())
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let option = |name: &str, path: &str| format!("{name}={}", self.folder.join(path).display());
        for option in [
            option("Dir::Etc::sourcelist", "sources.list"),
            option("Dir::State::lists", "lists"),
            option("Dir::Cache", "cache"),
            "Dir::Etc::sourceparts=-".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Retries=3".to_owned(),
            // Without this an unreachable mirror is only a warning.
            "APT::Update::Error-Mode=any".to_owned(),
            // The user `_apt` cannot read the cache if it is in a home directory.
            "APT::Sandbox::User=root".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command
    }
}

/// Returns the address of the archive from apt's configuration, so a configured mirror or proxy applies here too.
fn mirror(suite: &str) -> anyhow::Result<String> {
    let (mut main, mut security) = (env::var(MIRROR).ok(), None);
    if main.is_none() {
        // A fresh image has no package lists, and apt reads the label of an archive from them.
        let targets = targets().and_then(|targets| if targets.is_empty() { update_and_list() } else { Ok(targets) })?;
        main = labelled(&targets, "Debian");
        security = labelled(&targets, "Debian-Security");
    }
    let main = main.with_context(|| {
        format!("no source of apt on this machine is Debian's archive: set {MIRROR} to the address of one (http://HOST/debian)")
    })?;
    ensure!(!main.contains(char::is_whitespace), "{MIRROR} is not an address: {main:?}");
    let main = main.trim_end_matches('/');
    Ok(match suite.ends_with("-security") {
        true => security.unwrap_or_else(|| format!("{main}-security")),
        false => main.to_owned(),
    })
}

fn update_and_list() -> anyhow::Result<String> {
    machine::output(Command::new("apt-get").args(["update", "-qq"]))?;
    targets()
}

fn targets() -> anyhow::Result<String> {
    let format = ["indextargets", "--format", "$(LABEL) $(REPO_URI)", "Identifier: Packages", "Origin: Debian"];
    machine::output(Command::new("apt-get").args(format))
        .context("apt is needed to fetch kernels from Debian's archive: install apt and dpkg")
}

fn labelled(targets: &str, label: &str) -> Option<String> {
    let addresses = targets.lines().filter_map(|line| line.split_once(' '));
    addresses.filter(|(found, _)| *found == label).map(|(_, address)| address.trim().to_owned()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_distinguishes_the_security_archive() {
        let targets = "Debian-Security http://mirror.test/security/\nDebian http://mirror.test/debian/\n";
        assert_eq!(labelled(targets, "Debian").as_deref(), Some("http://mirror.test/debian/"));
        assert_eq!(labelled(targets, "Debian-Security").as_deref(), Some("http://mirror.test/security/"));
        assert_eq!(labelled("", "Debian"), None);
    }
}
