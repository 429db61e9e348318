//! Cgroups of a test's own.

use std::{
    env, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

/// A cgroup in each of some hierarchies, just below their roots, with whatever is made inside. It ends with the value.
pub struct Group {
    mount_points: Vec<PathBuf>,
    /// Its path from the root, which is one name.
    pub path: PathBuf,
}

impl Group {
    /// Makes it. `suffix` ends its name: `.slice` for a cgroup that is no workload.
    ///
    /// # Errors
    /// Where that is not allowed.
    pub fn create(mount_points: Vec<PathBuf>, suffix: &str) -> io::Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("/undercurrent-test-{}-{}{suffix}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let group = Self { mount_points, path: name.into() };
        group.make(&group.path)?;
        Ok(group)
    }

    /// Where a cgroup of this path stands, in each hierarchy.
    pub fn directories(&self, path: &Path) -> Vec<PathBuf> {
        let below = path.strip_prefix("/").unwrap_or(path);
        self.mount_points.iter().map(|root| root.join(below)).collect()
    }

    /// Where it stands itself.
    pub fn own(&self) -> Vec<PathBuf> {
        self.directories(&self.path)
    }

    /// Makes a cgroup of this path.
    ///
    /// # Errors
    /// The first directory that cannot be made.
    pub fn make(&self, path: &Path) -> io::Result<()> {
        self.directories(path).iter().try_for_each(|directory| {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
            fs::create_dir(directory).map_err(named)
        })
    }
}

impl Group {
    /// Gives a cgroup a quota: a tenth of one CPU.
    ///
    /// # Errors
    /// Where none of its hierarchies has the controller for it.
    pub fn limit(&self, path: &Path) -> io::Result<()> {
        for (directory, root) in self.directories(path).iter().zip(&self.mount_points) {
            let (v1, v2) = (directory.join("cpu.cfs_quota_us"), directory.join("cpu.max"));
            if v1.exists() {
                return fs::write(v1, "10000");
            }
            // The root belongs to systemd, which hands the controller down; a virtual machine has nobody who does.
            let parent = directory.parent().unwrap_or(root);
            if !v2.exists() && (parent != root || env::var_os("UNDERCURRENT_VM").is_some()) {
                fs::write(parent.join("cgroup.subtree_control"), "+cpu")?;
            }
            if v2.exists() {
                return fs::write(v2, "10000 100000");
            }
        }
        Err(io::Error::new(io::ErrorKind::Unsupported, "no hierarchy hands the controller `cpu` down to it"))
    }

    /// Runs something in a cgroup that takes as much CPU time as it gets, until the value goes, or for some seconds.
    ///
    /// # Errors
    /// Where it cannot be started there.
    pub fn burn(&self, path: &Path) -> io::Result<Burner> {
        let files = self.directories(path).into_iter().map(|directory| directory.join("cgroup.procs"));
        let child = Command::new("sh")
            .args([
                "-c",
                r#"ulimit -t 10; for file; do echo $$ >"$file" || exit; done; echo; while :; do :; done"#,
                "sh",
            ])
            .args(files)
            .stdout(Stdio::piped())
            .spawn();
        let mut burner = Burner(child?);
        // It says a line once it is there.
        if let Some(stdout) = &mut burner.0.stdout {
            stdout.read_exact(&mut [0])?;
        }
        Ok(burner)
    }
}

/// A process that is busy.
pub struct Burner(Child);

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for root in self.own() {
            if let Err(error) = remove_tree(&root) {
                eprintln!("{} stays behind: {error}", root.display());
            }
        }
    }
}

/// Removes a cgroup, once what was in it has ended: a process is in it until the kernel has let it go.
///
/// # Errors
/// Where it still has processes after a while, or cgroups inside.
pub fn remove(directory: &Path) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && start.elapsed() < Duration::from_secs(5) => {
                thread::yield_now();
            }
            done => return done,
        }
    }
}

fn remove_tree(directory: &Path) -> io::Result<()> {
    let mut all = vec![directory.to_owned()];
    for n in 0.. {
        let Some(directory) = all.get(n).cloned() else { break };
        let below =
            fs::read_dir(directory)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        all.extend(below.map(|entry| entry.path()));
    }
    all.iter().rev().try_for_each(|directory| remove(directory))
}
