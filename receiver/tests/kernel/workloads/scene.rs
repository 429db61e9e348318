//! The cgroup hierarchies of this kernel that identify a task's workload.

use std::{panic::resume_unwind, path::PathBuf, process::Command, thread, time::Duration};

use procfs::CGroupController;
use rustix::{
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};
use tempfile::TempDir;
use undercurrent::workloads::Mounts;

use super::super::support::{
    cgroups::Group,
    sidecar::{BINARY, Sidecar, command},
    surroundings::{alone, often, patience, skip, stores_readers, virtual_machine, wait_for},
};

/// Mounts only cgroup v2 for the following command, in a separate mount namespace.
const V2_ALONE: &str = r#"umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$0" "$@""#;

/// The name of version 1 in failure messages.
const V1: &str = "cgroup v1";

/// A hierarchy, and sidecars that use it.
pub struct Scene {
    /// The name in failure messages.
    name: &'static str,
    /// The mount points of its hierarchies.
    mount_points: Vec<PathBuf>,
    /// True if a sidecar would choose another hierarchy, which must be hidden.
    hidden: bool,
    _mounted: Option<Mounted>,
}

/// Runs a test with every available hierarchy, each time in a new thread, because tests pin their thread to a CPU.
pub fn everywhere(test: &str, run: impl Fn(&Scene) + Sync) {
    let Some(_alone) = alone(test) else { return };
    let scenes = [Scene::chosen, Scene::v2_alone, Scene::v1_mounted];
    let played = scenes.into_iter().filter_map(|scene| scene()).inspect(|scene| {
        eprintln!("{test}: {}", scene.name);
        in_a_thread(|| run(scene));
    });
    if played.count() == 0 {
        skip(&format!("{test}: no cgroups are mounted"));
    }
}

/// Runs a part of a test in a new thread with the name of the test.
fn in_a_thread(run: impl Fn() + Send) {
    let name = thread::current().name().unwrap_or_default().to_owned();
    let result = thread::scope(|scope| thread::Builder::new().name(name).spawn_scoped(scope, run).unwrap().join());
    result.unwrap_or_else(|failure| resume_unwind(failure));
}

impl Scene {
    /// Returns the hierarchy that a sidecar chooses among the mounted ones.
    fn chosen() -> Option<Self> {
        let mounts = Mounts::read().unwrap();
        let (name, parts) =
            if mounts.cpu.is_some() { (V1, vec![mounts.cpu, mounts.cpuacct]) } else { ("cgroup v2", vec![mounts.v2]) };
        let mut mount_points: Vec<_> = parts.into_iter().flatten().map(|mount| mount.point).collect();
        mount_points.dedup();
        (!mount_points.is_empty()).then_some(Self { name, mount_points, hidden: false, _mounted: None })
    }

    /// Returns version 2 on a machine with both versions.
    fn v2_alone() -> Option<Self> {
        let mounts = Mounts::read().unwrap();
        mounts.cpu.as_ref()?;
        let mount_points = vec![mounts.v2?.point];
        Some(Self { name: "cgroup v2 alone", mount_points, hidden: true, _mounted: None })
    }

    /// Returns version 1 on a virtual machine that has not mounted it.
    fn v1_mounted() -> Option<Self> {
        virtual_machine()?;
        if Mounts::read().unwrap().cpu.is_some() {
            return None;
        }
        let mounted = Mounted::cpu()?;
        Some(Self { _mounted: Some(mounted), ..Self::chosen()? })
    }

    /// Returns true if programs can read the cgroup of a task that identifies its workload. Before Linux 5.11 they can read only the
    /// cgroup of version 2.
    pub fn attributes_tasks(&self) -> bool {
        let reads = self.name != V1 || stores_readers();
        if !reads {
            eprintln!("cgroup v1 is left out: programs of this kernel cannot read a task's cgroup of version 1");
        }
        reads
    }

    /// Creates a cgroup.
    pub fn group(&self) -> Group {
        Group::create(self.mount_points.clone(), "").unwrap()
    }

    /// Starts a sidecar that uses this hierarchy.
    pub fn sidecar(&self, arguments: &[&str]) -> Sidecar {
        self.sidecar_at(often(), arguments)
    }

    /// Starts a sidecar with an interval that uses this hierarchy.
    pub fn sidecar_at(&self, interval: &str, arguments: &[&str]) -> Sidecar {
        Sidecar::start_by(self.command(), interval, arguments)
    }

    /// Returns a command that executes the program with this hierarchy.
    pub fn command(&self) -> Command {
        if !self.hidden {
            return command(BINARY);
        }
        let mut command = command("unshare");
        command.args(["--mount", "sh", "-c", V2_ALONE, BINARY]);
        command
    }
}

/// A hierarchy of version 1 that was mounted for a test.
struct Mounted(TempDir);

impl Mounted {
    fn cpu() -> Option<Self> {
        let mounted = Self(tempfile::tempdir().unwrap());
        // Removed cgroups of version 2 release the controller after a moment.
        let done = || Some(mounted.mount()).filter(|done| *done != Err(Errno::BUSY));
        match wait_for("the controller `cpu` to leave cgroup v2", patience(Duration::from_secs(5)), done) {
            Ok(()) => Some(mounted),
            Err(error) => {
                eprintln!("cgroup v1 is left out: this kernel does not mount the controller `cpu`: {error}");
                None
            }
        }
    }

    fn mount(&self) -> rustix::io::Result<()> {
        mount("none", self.0.path(), "cgroup", MountFlags::empty(), c"cpu,cpuacct")
    }

    fn unmount(&self) {
        unmount(self.0.path(), UnmountFlags::empty()).unwrap();
    }

    /// Returns the kernel's description of the controller.
    fn controller() -> CGroupController {
        procfs::cgroups().unwrap().0.into_iter().find(|controller| controller.name == "cpu").unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A hierarchy that is unmounted with cgroups stays, and removed cgroups are released after a moment.
        let empty = || (Self::controller().num_cgroups == 1).then_some(());
        wait_for("the hierarchy of version 1 to empty", patience(Duration::from_secs(5)), empty);
        self.unmount();
        let back = || (Self::controller().hierarchy == 0).then_some(());
        wait_for("the controller `cpu` to go back to version 2", patience(Duration::from_secs(5)), back);
    }
}
