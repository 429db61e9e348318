//! Cgroups of a test.

use std::{
    env, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The names begin with this text and the id of the test's process.
const PREFIX: &str = "undercurrent-test-";

/// A cgroup directly below the root of each given hierarchy, with all cgroups inside. Dropping the value removes
/// them.
pub struct Group {
    mount_points: Vec<PathBuf>,
    /// The path from the root, which is a single name.
    pub path: PathBuf,
}

impl Group {
    /// Creates the cgroup, and removes those of tests that were killed. `suffix` ends its name: `.slice` for a
    /// cgroup that is no workload.
    ///
    /// # Errors
    /// If this process has no permission.
    pub fn create(mount_points: Vec<PathBuf>, suffix: &str) -> io::Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        mount_points.iter().for_each(|root| remove_abandoned(root));
        let name = format!("/{PREFIX}{}-{}{suffix}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let group = Self { mount_points, path: name.into() };
        group.make(&group.path)?;
        Ok(group)
    }

    /// Returns the directory of the cgroup with this path in each hierarchy.
    pub fn directories(&self, path: &Path) -> Vec<PathBuf> {
        let below = path.strip_prefix("/").unwrap_or(path);
        self.mount_points.iter().map(|root| root.join(below)).collect()
    }

    /// Returns the directory of this cgroup in each hierarchy.
    pub fn own(&self) -> Vec<PathBuf> {
        self.directories(&self.path)
    }

    /// Creates the cgroup with this path.
    ///
    /// # Errors
    /// If a directory cannot be created.
    pub fn make(&self, path: &Path) -> io::Result<()> {
        self.directories(path).iter().try_for_each(|directory| {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
            fs::create_dir(directory).map_err(named)
        })
    }
}

impl Group {
    /// Sets the quota of a cgroup to a tenth of one CPU.
    ///
    /// # Errors
    /// If no hierarchy has the CPU controller.
    pub fn limit(&self, path: &Path) -> io::Result<()> {
        for (directory, root) in self.directories(path).iter().zip(&self.mount_points) {
            let (v1, v2) = (directory.join("cpu.cfs_quota_us"), directory.join("cpu.max"));
            if v1.exists() {
                return fs::write(v1, "10000");
            }
            // systemd owns the root and enables the controller below it. In a virtual machine the test enables it.
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

    /// Starts a process in a cgroup that uses all CPU time it gets. The process ends when the value is dropped, or
    /// after some seconds.
    ///
    /// # Errors
    /// If the process cannot be started in the cgroup.
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
        // The process writes a line after its start.
        if let Some(stdout) = &mut burner.0.stdout {
            stdout.read_exact(&mut [0])?;
        }
        Ok(burner)
    }
}

/// A process that uses CPU time.
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
            // The test may have removed it.
            if let Err(error) = remove_tree(&root)
                && error.kind() != io::ErrorKind::NotFound
            {
                eprintln!("{} stays behind: {error}", root.display());
            }
        }
    }
}

/// Removes a cgroup after its processes have ended. A process stays in its cgroup until the kernel has released
/// it.
///
/// # Errors
/// If the cgroup still has processes after some seconds, or has child cgroups.
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

/// Removes the cgroups of processes that no longer exist. A cgroup that another process uses stays.
fn remove_abandoned(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            // Another test may remove it at the same time.
            let _ = remove_tree(&entry.path());
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
