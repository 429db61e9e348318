//! Real cgroups for tests.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use super::{CgroupPath, Hierarchy, Mounts};

#[path = "../../tests/support/mod.rs"]
mod support;

pub use support::skip;

/// Every hierarchy of this machine that could be the one, whatever would be chosen.
pub fn hierarchies() -> Vec<Hierarchy> {
    let mounts = Mounts::read().unwrap();
    let v1 = Hierarchy::choose(Mounts { v2: None, ..mounts.clone() });
    let v2 = Hierarchy::choose(Mounts { cpu: None, ..mounts });
    v1.into_iter().chain(v2).filter(|hierarchy| hierarchy.partial().is_none() && hierarchy.accounts().is_ok()).collect()
}

/// A cgroup of a test's own in every tree of a hierarchy, with what the test makes below. It ends with the value.
pub struct Tree {
    roots: Vec<PathBuf>,
    /// Its path.
    pub path: CgroupPath,
}

impl Tree {
    /// Makes it; `None`, said as the runner wants it, where that is not allowed.
    pub fn create(hierarchy: &Hierarchy) -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("undercurrent-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let tree = Self { roots: hierarchy.mount_points(), path: CgroupPath::new(name.as_bytes()) };
        for root in tree.own() {
            if let Err(error) = fs::create_dir(&root) {
                skip(&format!("real cgroups: cannot make {}: {error}", root.display()));
                return None;
            }
        }
        Some(tree)
    }

    fn own(&self) -> Vec<PathBuf> {
        self.directories(&self.path)
    }

    fn directories(&self, path: &CgroupPath) -> Vec<PathBuf> {
        use std::os::unix::ffi::OsStrExt as _;
        let below = std::ffi::OsStr::from_bytes(&path.as_bytes()[1..]);
        self.roots.iter().map(|root| root.join(below)).collect()
    }

    /// Makes a cgroup below.
    pub fn make(&self, below: &[u8]) -> CgroupPath {
        let path = self.path.child(below);
        self.directories(&path).iter().for_each(|directory| fs::create_dir(directory).unwrap());
        path
    }

    /// Removes a cgroup below, once what was in it has ended.
    pub fn remove(&self, path: &CgroupPath) {
        self.directories(path).iter().for_each(|directory| remove(directory).unwrap());
    }

    /// Runs something in a cgroup that takes as much CPU time as it gets, until the value goes, or for some seconds.
    pub fn burn(&self, path: &CgroupPath) -> Burner {
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
        let mut burner = Burner(child.unwrap());
        // It says a line once it is there.
        let mut ready = [0];
        io::Read::read_exact(burner.0.stdout.as_mut().unwrap(), &mut ready).unwrap();
        burner
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for root in self.own() {
            if let Err(error) = remove_tree(&root) {
                eprintln!("{} stays behind: {error}", root.display());
            }
        }
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

/// A process that has ended is in its cgroup until the kernel has let it go.
fn remove(directory: &Path) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && start.elapsed() < Duration::from_secs(5) => {
                std::thread::yield_now();
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
