//! The cgroup of an engine and all its processes, so that the test can end exactly these processes.

use std::{
    fmt, fs, iter,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use procfs::process::{MountInfo, MountInfos, Process};
use xtask_common::process;

/// The cgroup hierarchies that programs see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// Version 2 alone, at /sys/fs/cgroup.
    Unified,
    /// The hierarchies of the host: version 1 and version 2.
    Hybrid,
}

impl Cgroups {
    /// Part of a shell script. Mounts version 2 at /sys/fs/cgroup in the script's mount namespace.
    const UNIFY: &str = r#"
if [ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ]; then
    umount -R /sys/fs/cgroup
    mount -t cgroup2 none /sys/fs/cgroup
fi
"#;

    /// Returns the part of a shell script that sets up the hierarchies.
    pub const fn script(self) -> &'static str {
        match self {
            Self::Unified => Self::UNIFY,
            Self::Hybrid => "",
        }
    }

    /// Returns the mount point of version 2 after the script.
    pub fn v2(self) -> anyhow::Result<PathBuf> {
        match self {
            Self::Unified => Ok("/sys/fs/cgroup".into()),
            Self::Hybrid => root(),
        }
    }

    /// Returns the CPU time of a group on the host in seconds, from the kernel's accounting file.
    pub fn cpu_time(self, path: &str) -> anyhow::Result<f64> {
        let file = match self {
            Self::Unified => root()?.join(path).join("cpu.stat"),
            Self::Hybrid => accounting()?.join(path).join("cpuacct.usage"),
        };
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let (count, second) = match self {
            Self::Unified => (text.lines().find_map(|line| line.strip_prefix("usage_usec ")), 1e6),
            Self::Hybrid => (Some(text.trim()), 1e9),
        };
        let count: f64 = count.context("no CPU time")?.parse()?;
        Ok(count / second)
    }

    /// True if this host has the hierarchies.
    pub fn exist(self) -> bool {
        self == Self::Unified || v1_roots().is_ok_and(|roots| !roots.is_empty())
    }
}

/// Timeout for the kernel to reap killed processes.
const REAP: Duration = Duration::from_secs(10);

/// The names in reports.
impl fmt::Display for Cgroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unified => "cgroup v2",
            Self::Hybrid => "cgroup v1",
        })
    }
}

/// A group of the host's cgroup v2 tree. On drop, its processes are killed and the group is removed, also the groups with an equal name
/// that an engine created in the trees of version 1, and parents that are empty then.
pub struct Group {
    name: String,
    path: PathBuf,
}

impl Group {
    /// Creates an empty group.
    pub fn create(name: &str) -> anyhow::Result<Self> {
        let group = Self::of_an_engine(name)?;
        fs::create_dir(&group.path).with_context(|| format!("cannot create the cgroup {}", group.path.display()))?;
        Ok(group)
    }

    /// Returns a group that an engine creates, with its missing parents.
    pub fn of_an_engine(name: &str) -> anyhow::Result<Self> {
        Ok(Self { name: name.to_owned(), path: root()?.join(name) })
    }

    /// Returns the path relative to the root of the tree.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Kills the remaining processes and removes the group. Idempotent.
    ///
    /// # Errors
    /// If a process or a group remains.
    pub fn remove(&self) -> anyhow::Result<()> {
        if self.path.exists() {
            fs::write(self.path.join("cgroup.kill"), "1").context("cannot kill the engine's remaining processes")?;
        }
        for root in v1_roots()?.into_iter().chain(iter::once(root()?)) {
            let tree = root.join(&self.name);
            if tree.exists() {
                process::wait_for("the engine's cgroups to empty", REAP, || Ok(remove_tree(&tree).ok()))?;
            }
            // The creator of the group also created its parents. Parents with other children remain.
            let above = tree.ancestors().skip(1).take_while(|group| **group != root);
            above.map_while(|group| fs::remove_dir(group).ok()).for_each(drop);
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("the cgroup {} remains: {error:#}", self.path.display());
        }
    }
}

/// Removes a group and its descendants. Fails if a group has processes; the files of a group do not matter.
fn remove_tree(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

/// Returns the mount point of the cgroup v2 tree.
fn root() -> anyhow::Result<PathBuf> {
    let root = mounted("cgroup2")?.into_iter().next();
    root.context("no cgroup v2 tree is mounted; `mount -t cgroup2 none /sys/fs/cgroup` mounts one")
}

/// Returns the mount points of the trees of version 1.
fn v1_roots() -> anyhow::Result<Vec<PathBuf>> {
    mounted("cgroup")
}

/// Returns the mount point of the tree of version 1 that accounts CPU time.
fn accounting() -> anyhow::Result<PathBuf> {
    let counts = |mount: &MountInfo| mount.fs_type == "cgroup" && mount.super_options.contains_key("cpuacct");
    Ok(mounts()?.into_iter().find(counts).context("no cgroup v1 tree with cpuacct is mounted")?.mount_point)
}

fn mounted(kind: &str) -> anyhow::Result<Vec<PathBuf>> {
    Ok(mounts()?.into_iter().filter(|mount| mount.fs_type == kind).map(|mount| mount.mount_point).collect())
}

fn mounts() -> anyhow::Result<MountInfos> {
    Process::myself().and_then(|me| me.mountinfo()).context("cannot read the mounts")
}
