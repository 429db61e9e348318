//! The cgroup that holds everything an engine starts, so that ending it misses nothing and hits nothing else.

use std::{
    fmt, fs, iter,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use procfs::process::{MountInfo, MountInfos, Process};
use xtask_common::process;

/// Which hierarchies of cgroups programs find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// Version 2 alone, at /sys/fs/cgroup.
    Unified,
    /// The host's own, with version 1's beside version 2's.
    Hybrid,
}

impl Cgroups {
    /// Lines of a shell script that show what it wants, in the mount namespace that it runs in.
    const UNIFY: &str = r#"
if [ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ]; then
    umount -R /sys/fs/cgroup
    mount -t cgroup2 none /sys/fs/cgroup
fi
"#;

    /// See `UNIFY`; none where the host's own are meant.
    pub const fn script(self) -> &'static str {
        match self {
            Self::Unified => Self::UNIFY,
            Self::Hybrid => "",
        }
    }

    /// Where such a script finds version 2.
    pub fn v2(self) -> anyhow::Result<PathBuf> {
        match self {
            Self::Unified => Ok("/sys/fs/cgroup".into()),
            Self::Hybrid => root(),
        }
    }

    /// Seconds of CPU time that a group of the host has used, by the file of the kernel's that says it.
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

    /// Whether this host has the hierarchies.
    pub fn exist(self) -> bool {
        self == Self::Unified || v1_roots().is_ok_and(|roots| !roots.is_empty())
    }
}

/// Longer than the kernel takes to reap what was killed.
const REAP: Duration = Duration::from_secs(10);

/// As a reader knows them.
impl fmt::Display for Cgroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unified => "cgroup v2",
            Self::Hybrid => "cgroup v1",
        })
    }
}

/// A group of the host's cgroup v2 tree. It ends with the value, and everything in it, as do the groups of its name that
/// an engine makes in version 1's trees for what is in this one, and those above that are left empty.
pub struct Group {
    name: String,
    path: PathBuf,
}

impl Group {
    /// Makes an empty group.
    pub fn create(name: &str) -> anyhow::Result<Self> {
        let group = Self::of_an_engine(name)?;
        fs::create_dir(&group.path).with_context(|| format!("cannot make the cgroup {}", group.path.display()))?;
        Ok(group)
    }

    /// One that an engine makes, with those above it that are missing.
    pub fn of_an_engine(name: &str) -> anyhow::Result<Self> {
        Ok(Self { name: name.to_owned(), path: root()?.join(name) })
    }

    /// Its name, from the root of the tree.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends what is left in it and removes it; an error when something stays. It may be called again.
    pub fn remove(&self) -> anyhow::Result<()> {
        if self.path.exists() {
            fs::write(self.path.join("cgroup.kill"), "1").context("cannot end what is left of the engine")?;
        }
        for root in v1_roots()?.into_iter().chain(iter::once(root()?)) {
            let tree = root.join(&self.name);
            if tree.exists() {
                process::wait_for("the engine's cgroups to empty", REAP, || Ok(remove_tree(&tree).ok()))?;
            }
            // Whoever made it made those above it too, and whatever else is in them keeps them.
            let above = tree.ancestors().skip(1).take_while(|group| **group != root);
            above.map_while(|group| fs::remove_dir(group).ok()).for_each(drop);
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("the cgroup {} stays behind: {error:#}", self.path.display());
        }
    }
}

/// Removes a group and those below it. A group's files are no obstacle, processes are.
fn remove_tree(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

/// Where the cgroup v2 tree is mounted.
fn root() -> anyhow::Result<PathBuf> {
    let root = mounted("cgroup2")?.into_iter().next();
    root.context("no cgroup v2 tree is mounted; `mount -t cgroup2 none /sys/fs/cgroup` mounts one")
}

/// Where version 1's trees are mounted, if any are.
fn v1_roots() -> anyhow::Result<Vec<PathBuf>> {
    mounted("cgroup")
}

/// Where version 1 counts CPU time.
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
