//! Short-lived containers without a runtime: cgroups with Docker's names, each with a process that sends datagrams
//! to its own socket and reads them.

use std::{
    fs, io,
    net::{Ipv4Addr, UdpSocket},
    path::PathBuf,
    process,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use undercurrent::workloads::Mounts;

use super::cgroups::{Group, remove};

/// Datagrams that each process sends and reads.
pub const DATAGRAMS: u32 = 10;

/// A slice with all of these cgroups. Dropping the value removes it.
pub struct Churn(Group);

impl Churn {
    /// Creates the slice in the hierarchies that a runtime would use: those of version 1 for attribution and CPU
    /// time, or version 2.
    pub fn prepare() -> io::Result<Self> {
        let mounts = Mounts::read()?;
        let trees = if mounts.cpu.is_some() { [mounts.cpu, mounts.cpuacct] } else { [mounts.v2, None] };
        let mut points: Vec<_> = trees.into_iter().flatten().map(|tree| tree.point).collect();
        points.dedup();
        Group::create(points, ".slice").map(Self)
    }

    /// Returns the prefix of the containers' ids.
    pub fn prefix(&self) -> String {
        format!("{:032x}", process::id())
    }

    /// Starts containers one after another and waits until all have ended. Each lives between `shortest` and five
    /// times as long. Returns the number of datagrams that they read.
    pub fn run(&self, lives: u32, every: Duration, shortest: Duration) -> io::Result<u32> {
        let (begun, (ended, ends)) = (Instant::now(), mpsc::channel());
        thread::scope(|scope| {
            for n in 0..lives {
                thread::sleep((every * n).saturating_sub(begun.elapsed()));
                let ended = ended.clone();
                // A detached thread frees its stack when it ends.
                scope.spawn(move || ended.send(self.live(n, shortest + shortest * (n * 97 % 401) / 100)));
            }
        });
        drop(ended);
        ends.into_iter().sum()
    }

    /// Runs one container, from the creation of its first cgroup to the removal of its last.
    fn live(&self, n: u32, life: Duration) -> io::Result<u32> {
        let name = format!("docker-{}{n:032x}.scope", self.prefix());
        let own: Vec<PathBuf> = self.0.own().iter().map(|slice| slice.join(&name)).collect();
        own.iter().try_for_each(fs::create_dir)?;
        let procs: Vec<PathBuf> = own.iter().map(|directory| directory.join("cgroup.procs")).collect();
        let ended = fork(|| talk(&procs, life));
        own.iter().try_for_each(|directory| remove(directory))?;
        ended.map(|()| DATAGRAMS)
    }
}

/// The code of a container's process. Runtimes take some tens of milliseconds from a cgroup to the container's
/// first program; this process waits half of its life before the first datagram.
fn talk(procs: &[PathBuf], life: Duration) -> io::Result<()> {
    procs.iter().try_for_each(|procs| fs::write(procs, "0"))?;
    thread::sleep(life / 2);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(socket.local_addr()?)?;
    for _ in 0..DATAGRAMS {
        socket.send(&[0x55; 100])?;
        socket.recv(&mut [0; 100])?;
    }
    thread::sleep(life / 2);
    Ok(())
}

/// Runs a function in a child process, and waits for its end.
fn fork(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: the child has only this thread. It makes system calls, takes no lock that another thread may have
    // held, and ends without running destructors.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = work().map_or_else(|error| error.raw_os_error().unwrap_or(1), |()| 0);
            // SAFETY: the call ends the child without running destructors.
            unsafe { libc::_exit(status) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` is live, and no other thread waits for this child.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            match (waited, status) {
                (-1, _) => Err(io::Error::last_os_error()),
                (_, 0) => Ok(()),
                (_, status) if libc::WIFEXITED(status) => Err(io::Error::from_raw_os_error(libc::WEXITSTATUS(status))),
                (_, status) => Err(io::Error::other(format!("a container's process ended with status {status}"))),
            }
        }
    }
}
