//! Programs that a guest needs: QEMU, virtiofsd, and a static busybox for the initramfs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use xtask_common::machine;

use super::store::Store;

/// The first version with usable multi-threading. Older versions crash the guest (`Oops: int3`) when probes are attached under load.
/// 10.0 crashes rarely, once in many hours, so tests use one thread (`--in-turns`).
const MULTI_THREADED_SINCE: u32 = 10;
/// Suites with a newer QEMU, by the codename of the distribution.
const BACKPORTS: &[(&str, &str)] = &[("bookworm", "bookworm-backports")];

/// QEMU for x86-64.
#[derive(Debug)]
pub struct Qemu {
    /// Path of the program.
    pub program: PathBuf,
    /// Folders of firmware, in addition to the compiled-in one.
    pub data: Vec<PathBuf>,
    /// True if each CPU may run in a separate thread.
    pub multi_threaded: bool,
}

/// The daemon that serves a folder to the guest. Two implementations exist.
#[derive(Debug)]
pub enum Virtiofsd {
    /// The implementation in C, part of QEMU until version 7.
    C(PathBuf),
    /// The implementation in Rust.
    Rust(PathBuf),
}

impl Qemu {
    /// Returns the machine's QEMU if it is new enough, else a newer one from backports, else the machine's QEMU with one thread.
    pub fn find(store: &Store) -> anyhow::Result<Self> {
        ensure!(cfg!(target_arch = "x86_64"), "virtual machines are supported on x86-64 only");
        store.install(&["qemu-system-x86", "seabios"])?;
        let system = PathBuf::from("qemu-system-x86_64");
        let version = version(&system)?;
        if version >= MULTI_THREADED_SINCE {
            return Ok(Self { program: system, data: Vec::new(), multi_threaded: true });
        }
        let Some((_, suite)) = BACKPORTS.iter().find(|(codename, _)| *codename == self::codename()) else {
            eprintln!(
                "QEMU {version} runs the guest on one thread, which is slow: install version {MULTI_THREADED_SINCE} or later"
            );
            return Ok(Self { program: system, data: Vec::new(), multi_threaded: false });
        };
        let folder = store.make("qemu", |made| {
            let packages = ["qemu-system-x86", "qemu-system-common", "qemu-system-data"].map(str::to_owned);
            store.suite(suite)?.unpack(&packages, made)?;
            // The program uses the libraries of the machine's QEMU. Fail here if one is missing.
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
    /// Returns the daemon, and installs it if it is missing.
    pub fn find(store: &Store) -> anyhow::Result<Self> {
        let present = || {
            let (old, new) = (PathBuf::from("/usr/lib/qemu/virtiofsd"), PathBuf::from("/usr/libexec/virtiofsd"));
            // Prefer the implementation in Rust, which is maintained.
            if new.is_file() { Some(Self::Rust(new)) } else { old.is_file().then_some(Self::C(old)) }
        };
        if let Some(found) = present() {
            return Ok(found);
        }
        store.install(&["virtiofsd"])?;
        present().context("virtiofsd is neither in /usr/lib/qemu nor in /usr/libexec: install it there")
    }
}

/// Returns a static busybox, unpacked from Debian's archive: the package conflicts with the dynamic busybox.
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
    major(&text).with_context(|| format!("{} does not print its version: {text}", program.display()))
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
    fn the_version_is_that_of_the_emulator() {
        let text = "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)\nCopyright (c) 2003-2025";
        assert_eq!(major(text), Some(10));
        assert_eq!(major("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)"), Some(7));
        assert_eq!(major("no such thing"), None);
    }
}
