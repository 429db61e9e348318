//! The programs that a guest is run with: QEMU, virtiofsd, and a static busybox for the guest's first steps.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use xtask_common::machine;

use super::store::Store;

/// Older ones soon panic the guest (`Oops: int3`) when probes are attached under load on several threads; 10.0 did once in many
/// hours, so that tests do without (`--in-turns`).
const MULTI_THREADED_SINCE: u32 = 10;
/// The suites that have such a QEMU for a machine whose own is older, by the machine's codename.
const BACKPORTS: &[(&str, &str)] = &[("bookworm", "bookworm-backports")];

/// QEMU for x86-64.
#[derive(Debug)]
pub struct Qemu {
    /// The program.
    pub program: PathBuf,
    /// Where it finds its firmware, if not where it was built to look.
    pub data: Vec<PathBuf>,
    /// Whether each CPU may run in a thread of its own.
    pub multi_threaded: bool,
}

/// The daemon that serves a folder to the guest. There are two of that name.
#[derive(Debug)]
pub enum Virtiofsd {
    /// The one that came with QEMU up to 7.
    C(PathBuf),
    /// Its successor.
    Rust(PathBuf),
}

impl Qemu {
    /// The machine's own QEMU if that is new enough, else a newer one beside it, else the old one on a single thread.
    pub fn find(store: &Store) -> anyhow::Result<Self> {
        ensure!(cfg!(target_arch = "x86_64"), "virtual machines run on x86-64 only, for now");
        store.install(&["qemu-system-x86", "seabios"])?;
        let system = PathBuf::from("qemu-system-x86_64");
        let version = version(&system)?;
        if version >= MULTI_THREADED_SINCE {
            return Ok(Self { program: system, data: Vec::new(), multi_threaded: true });
        }
        let Some((_, suite)) = BACKPORTS.iter().find(|(codename, _)| *codename == self::codename()) else {
            eprintln!("QEMU {version} runs the guest on a single thread: {MULTI_THREADED_SINCE} and later do better");
            return Ok(Self { program: system, data: Vec::new(), multi_threaded: false });
        };
        let folder = store.make("qemu", |made| {
            let packages = ["qemu-system-x86", "qemu-system-common", "qemu-system-data"].map(str::to_owned);
            store.suite(suite)?.unpack(&packages, made)?;
            // The libraries are those of the machine's own QEMU: better to learn here that one is missing.
            self::version(&made.join("usr/bin/qemu-system-x86_64")).map(drop)
        })?;
        Ok(Self {
            program: folder.join("usr/bin/qemu-system-x86_64"),
            data: vec![folder.join("usr/share/qemu"), "/usr/share/seabios".into()],
            multi_threaded: true,
        })
    }
}

impl Virtiofsd {
    /// Finds it, installing it if it is not there.
    pub fn find(store: &Store) -> anyhow::Result<Self> {
        let present = || {
            let (old, new) = (PathBuf::from("/usr/lib/qemu/virtiofsd"), PathBuf::from("/usr/libexec/virtiofsd"));
            // The successor first: where both are, it is the one still maintained.
            if new.is_file() { Some(Self::Rust(new)) } else { old.is_file().then_some(Self::C(old)) }
        };
        if let Some(found) = present() {
            return Ok(found);
        }
        store.install(&["virtiofsd"])?;
        present().context("virtiofsd is neither in /usr/lib/qemu nor in /usr/libexec: install it there")
    }
}

/// A static busybox. From the archive, since Debian's package cannot be installed beside the dynamic one.
pub fn busybox(store: &Store) -> anyhow::Result<PathBuf> {
    let folder = store.make("busybox", |made| {
        store.suite("bookworm")?.unpack(&["busybox-static".to_owned()], made)?;
        ensure!(made.join("bin/busybox").is_file(), "the package busybox-static has no bin/busybox");
        Ok(())
    })?;
    Ok(folder.join("bin/busybox"))
}

fn version(program: &Path) -> anyhow::Result<u32> {
    let text = machine::output(Command::new(program).arg("--version"))?;
    major(&text).with_context(|| format!("{} does not say its version: {text}", program.display()))
}

fn major(text: &str) -> Option<u32> {
    text.split_once("version ")?.1.split('.').next()?.parse().ok()
}

fn codename() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.unwrap_or_default().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_emulators_not_the_packages() {
        let text = "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)\nCopyright (c) 2003-2025";
        assert_eq!(major(text), Some(10));
        assert_eq!(major("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)"), Some(7));
        assert_eq!(major("no such thing"), None);
    }
}
