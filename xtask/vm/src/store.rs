//! The cache of kernels and tools. Each entry is built in a temporary folder and renamed into place, so every entry is complete. A lock
//! keeps two commands from building one entry.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use xtask_common::{machine, packages};

use super::{
    archive::Suite,
    bzimage,
    kernels::{KERNELS, Kernel},
    read, write,
};

/// Prefix of the names of temporary folders.
const UNFINISHED: &str = "unfinished-";

/// The folder of cached kernels and tools.
pub struct Store {
    folder: PathBuf,
}

/// A kernel that is ready to boot.
pub struct Cached {
    /// The release, as `uname -r` prints it.
    pub release: String,
    /// The uncompressed image, with BTF and without debug information.
    pub vmlinux: PathBuf,
    /// The folder of uncompressed modules, with `modules.dep`.
    pub modules: PathBuf,
}

impl Store {
    /// Opens the cache, which may be empty.
    pub fn open() -> anyhow::Result<Self> {
        Ok(Self { folder: machine::cache("vm")? })
    }

    /// Path of the cache.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns a kernel if the cache has it.
    pub fn cached(&self, kernel: &Kernel) -> anyhow::Result<Option<Cached>> {
        let folder = self.folder.join("kernels").join(kernel.name);
        if !folder.is_dir() {
            return Ok(None);
        }
        let release = String::from_utf8(read(&folder.join("release"))?)
            .with_context(|| format!("{} is damaged: remove it", folder.display()))?;
        let modules = folder.join("lib/modules").join(&release);
        Ok(Some(Cached { release, vmlinux: folder.join("vmlinux"), modules }))
    }

    /// Returns a kernel. Fetches it from Debian's archive if it is not in the cache.
    pub fn kernel(&self, kernel: &Kernel) -> anyhow::Result<Cached> {
        self.make(&format!("kernels/{}", kernel.name), |made| fetch(kernel, &self.suite(kernel.suite)?, made))
            .with_context(|| format!("cannot get kernel {}; {}", kernel.name, self.others()))?;
        self.cached(kernel)?
            .with_context(|| format!("kernel {} disappeared from the cache: run this again", kernel.name))
    }

    fn others(&self) -> String {
        let cached = KERNELS.iter().filter(|kernel| matches!(self.cached(kernel), Ok(Some(_))));
        let names: Vec<_> = cached.map(|kernel| kernel.name).collect();
        if names.is_empty() {
            "the cache has no kernel".to_owned()
        } else {
            format!("the cache has {}", names.join(", "))
        }
    }

    /// Installs packages. Holds the lock meanwhile, because apt fails while another apt runs.
    pub fn install(&self, packages: &[&str]) -> anyhow::Result<()> {
        let known = Command::new("dpkg-query").arg("-W").args(packages).output();
        let _lock = match known {
            Ok(output) if output.status.success() => None,
            _ => Some(self.lock()?),
        };
        packages::install(packages)
    }

    /// Fetches the package lists of a suite of Debian's archive.
    pub fn suite(&self, name: &str) -> anyhow::Result<Suite> {
        Suite::open(name, self.folder.join("apt").join(name))
    }

    /// Returns the path of an entry. If it is missing, `fill` creates its content in an empty folder.
    pub fn make(&self, name: &str, fill: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<PathBuf> {
        let place = self.folder.join(name);
        if place.is_dir() {
            return Ok(place);
        }
        let _lock = self.lock()?;
        if place.is_dir() {
            return Ok(place);
        }
        self.remove_unfinished()?;
        eprintln!("fetching {name} into {}", self.folder.display());
        let new = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempdir_in(&self.folder)
            .with_context(|| format!("cannot create a folder in {}", self.folder.display()))?;
        let made = new.path().join("made");
        fs::create_dir(&made)?;
        fill(&made)?;
        let parent = place.parent().context("a name in the cache has a parent")?;
        fs::create_dir_all(parent)?;
        fs::rename(&made, &place).with_context(|| format!("cannot move {name} into the cache"))?;
        Ok(place)
    }

    /// Removes temporary folders of interrupted commands. Needs the lock: otherwise another command could use them.
    fn remove_unfinished(&self) -> anyhow::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> anyhow::Result<File> {
        let path = self.folder.join("lock");
        let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("another command is filling {}: waiting for it", self.folder.display());
                file.lock()?;
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        Ok(file)
    }
}

fn fetch(kernel: &Kernel, suite: &Suite, made: &Path) -> anyhow::Result<()> {
    packages::install(&[bzimage::PACKAGES, &["kmod"]].concat())?;
    let names = suite.names(kernel.prefix())?;
    let packages = kernel.newest(names.lines()).with_context(|| {
        let (suite, pattern) = (kernel.suite, kernel.packages.join(", "));
        format!("{suite} has no packages {pattern}: their names may have changed, see xtask/vm/src/kernels.rs")
    })?;
    let unpacked = made.join("unpacked");
    suite.unpack(&packages, &unpacked)?;
    let folder = modules_folder(&unpacked)?;
    let release = folder.file_name().and_then(|name| name.to_str()).context("a kernel's release is text")?.to_owned();

    let boot = unpacked.join("boot").join(format!("vmlinuz-{release}"));
    let image = if boot.is_file() { boot } else { folder.join("vmlinuz") };
    let vmlinux = bzimage::vmlinux(&read(&image)?).with_context(|| format!("cannot unpack {}", image.display()))?;
    write(&made.join("vmlinux"), vmlinux)?;

    fs::create_dir_all(made.join("lib/modules"))?;
    let modules = made.join("lib/modules").join(&release);
    fs::rename(&folder, &modules)?;
    // Some builds of kmod search below usr/lib.
    fs::create_dir(made.join("usr"))?;
    std::os::unix::fs::symlink("../lib", made.join("usr/lib"))?;
    decompress(&modules)?;
    machine::output(Command::new("/sbin/depmod").arg("-b").arg(made).arg(&release))?;
    write(&made.join("release"), release)?;
    fs::remove_dir_all(unpacked)?;
    Ok(())
}

/// Returns the folder of modules in unpacked kernel packages. Its name is the kernel's release.
fn modules_folder(unpacked: &Path) -> anyhow::Result<PathBuf> {
    let mut found = Vec::new();
    for parent in ["lib/modules", "usr/lib/modules"] {
        for entry in fs::read_dir(unpacked.join(parent)).into_iter().flatten() {
            found.push(entry?.path());
        }
    }
    found.retain(|folder| folder.join("kernel").is_dir());
    ensure!(found.len() == 1, "the packages have {} folders of modules instead of one: {found:?}", found.len());
    found.pop().context("no folder of modules")
}

/// Unpacks compressed modules. In the guest this would take ten times as long, at each load.
fn decompress(modules: &Path) -> anyhow::Result<()> {
    for (suffix, unpack) in [("*.ko.xz", ["xz", "-dq"].as_slice()), ("*.ko.zst", &["zstd", "-dq", "--rm"])] {
        let mut find = Command::new("find");
        find.arg(modules).args(["-name", suffix, "-exec"]).args(unpack).args(["{}", "+"]);
        machine::output(&mut find)?;
    }
    Ok(())
}
