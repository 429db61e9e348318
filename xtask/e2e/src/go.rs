//! The Go toolchain of this machine.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use xtask_common::{machine, packages};

/// Since this version, Go fetches a newer toolchain unless `GOTOOLCHAIN` forbids it.
const FETCHES_TOOLCHAINS: Version = Version(1, 21);

/// A Go release: `Version(1, 25)` is every 1.25.x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

/// A Go toolchain.
pub struct Go {
    program: PathBuf,
}

impl Go {
    /// Returns the first toolchain that can build a program, from `PATH` or from Debian's versioned packages. Installs Debian's default package if the
    /// machine has no Go.
    pub fn find(program: &str, oldest: Version) -> anyhow::Result<Self> {
        if candidates().is_empty() {
            packages::install(&["golang-go"])?;
        }
        let mut found = Vec::new();
        for program in candidates() {
            let go = Self { program };
            let version = go.version()?;
            if version >= oldest || (version >= FETCHES_TOOLCHAINS && go.setting("GOTOOLCHAIN")? != "local") {
                return Ok(go);
            }
            found.push(format!("{} is {}.{}", go.program.display(), version.0, version.1));
        }
        let Version(major, minor) = oldest;
        bail!(
            "{program} needs Go {major}.{minor} or newer ({}). Install one and add it to PATH, on Debian for \
             example golang-{major}.{minor}-go from backports",
            found.join(", ")
        );
    }

    /// Returns a call of `go` in a folder, for static binaries and without a surrounding workspace.
    pub fn command(&self, folder: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(&self.program);
        command.current_dir(folder).env("CGO_ENABLED", "0").env("GOWORK", "off");
        if let Some(proxies) = without_direct(&self.setting("GOPROXY")?) {
            command.env("GOPROXY", proxies);
        }
        Ok(command)
    }

    fn version(&self) -> anyhow::Result<Version> {
        let printed = machine::output(Command::new(&self.program).arg("version"))?;
        parse_version(&printed).with_context(|| format!("`go version` printed something unexpected: {printed}"))
    }

    fn setting(&self, name: &str) -> anyhow::Result<String> {
        Ok(machine::output(Command::new(&self.program).args(["env", name]))?.trim().to_owned())
    }
}

/// Returns every `go`: first the one in `PATH`, then Debian's versioned ones, newest first.
fn candidates() -> Vec<PathBuf> {
    let mut versioned: Vec<_> = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = parse_release(entry.file_name().to_str()?.strip_prefix("go-")?)?;
            Some((version, entry.path().join("bin/go")))
        })
        .filter(|(_, program)| program.is_file())
        .collect();
    versioned.sort();
    let on_path = machine::has("go").then(|| PathBuf::from("go"));
    on_path.into_iter().chain(versioned.into_iter().rev().map(|(_, program)| program)).collect()
}

/// Returns the version from a line like `go version go1.26.8 linux/amd64`.
fn parse_version(printed: &str) -> Option<Version> {
    parse_release(printed.split_whitespace().find_map(|word| word.strip_prefix("go1").map(|_| &word[2..]))?)
}

/// Parses `1.26.8`, `1.27rc1` or `1.25`. Ignores the part after the minor number.
fn parse_release(release: &str) -> Option<Version> {
    let (major, rest) = release.split_once('.')?;
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
    Some(Version(major.parse().ok()?, digits.parse().ok()?))
}

/// Returns a proxy list without `direct`, or `None` if the list has no proxy. With `direct`, a module that the proxy lacks causes an
/// error about git.
fn without_direct(proxies: &str) -> Option<&str> {
    let rest = proxies.strip_suffix("direct").unwrap_or(proxies).trim_end_matches([',', '|']);
    (!rest.is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_ordered_as_numbers() {
        let parse = |version| parse_version(&format!("go version go{version} linux/amd64"));
        assert_eq!(parse("1.26.8"), Some(Version(1, 26)));
        assert_eq!(parse("1.27rc1"), Some(Version(1, 27)));
        assert_eq!(parse("1.9"), Some(Version(1, 9)));
        assert!(parse("1.9") < Some(Version(1, 25)));
        assert_eq!(parse_version("not go"), None);
    }

    #[test]
    fn the_proxy_list_loses_only_direct() {
        assert_eq!(
            without_direct("https://a.example,https://b.example|direct"),
            Some("https://a.example,https://b.example")
        );
        assert_eq!(without_direct("https://a.example,direct"), Some("https://a.example"));
        assert_eq!(without_direct("off"), Some("off"));
        assert_eq!(without_direct("direct"), None);
    }
}
