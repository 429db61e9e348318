//! The cgroup that holds everything an engine starts, so that ending it misses nothing and hits nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, ensure};

use crate::{machine, process};

/// Longer than the kernel takes to reap what was killed.
const REAP: Duration = Duration::from_secs(10);

/// A group below the root of the host's cgroup v2 tree. It ends with the value, and everything in it.
pub struct Group {
    name: String,
    path: PathBuf,
}

impl Group {
    /// Makes an empty group.
    pub fn create(name: &str) -> anyhow::Result<Self> {
        let path = root()?.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make the cgroup {}", path.display()))?;
        Ok(Self { name: name.to_owned(), path })
    }

    /// Its name, from the root of the tree.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends what is left in it and removes it; an error when something stays. It may be called again.
    pub fn remove(&self) -> anyhow::Result<()> {
        if !self.path.exists() {
            return Ok(());
        }
        fs::write(self.path.join("cgroup.kill"), "1").context("cannot end what is left of the engine")?;
        process::wait_for("the engine's cgroup to empty", REAP, || Ok(remove_tree(&self.path).ok()))
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
    let mounts = machine::output(std::process::Command::new("findmnt").args(["-n", "-o", "TARGET", "-t", "cgroup2"]))
        .context("no cgroup v2 tree is mounted; `mount -t cgroup2 none /sys/fs/cgroup` mounts one")?;
    let root = mounts.lines().next().unwrap_or_default();
    ensure!(!root.is_empty(), "no cgroup v2 tree is mounted");
    Ok(root.into())
}
