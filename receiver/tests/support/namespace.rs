//! Network namespaces that end with the value: only its descriptor refers to them.

use std::{
    fs::File,
    os::{
        fd::{AsFd as _, AsRawFd as _},
        unix::fs::MetadataExt as _,
    },
    process::{self, Command},
    thread,
};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// The network namespace of the calling thread; `/proc/self` is the namespace of the first thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace.
pub struct Namespace(File);

impl Namespace {
    /// Returns the namespace of this process.
    pub fn current() -> Self {
        Self(File::open(OWN).unwrap())
    }

    /// Creates a namespace with an active loopback.
    pub fn new() -> Self {
        let made = || {
            // SAFETY: only this thread's network namespace changes, and the thread runs no other code.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            Self::current()
        };
        let namespace = thread::spawn(made).join().unwrap();
        namespace.ip("link set dev lo up");
        namespace
    }

    /// Duplicates the descriptor of the namespace.
    pub fn same(&self) -> Self {
        Self(self.0.try_clone().unwrap())
    }

    /// Returns the inode number, which identifies the namespace.
    pub fn inode(&self) -> u64 {
        self.0.metadata().unwrap().ino()
    }

    /// Returns a path for commands.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.0.as_raw_fd())
    }

    /// Runs a function in the namespace. Its sockets stay in the namespace wherever they are used.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }

    /// Runs `ip` in the namespace.
    pub fn ip(&self, arguments: &str) {
        self.command("ip", arguments);
    }

    /// Runs `tc` in the namespace.
    pub fn tc(&self, arguments: &str) {
        self.command("tc", arguments);
    }

    /// Attaches a queue to a virtual device, which has none by default.
    pub fn queue(&self, device: &str) {
        self.tc(&format!("qdisc add dev {device} root pfifo limit 1000"));
    }

    fn command(&self, program: &str, arguments: &str) {
        let output = self.run(|| Command::new(program).args(arguments.split_whitespace()).output().unwrap());
        assert!(output.status.success(), "{program} {arguments}: {output:?}");
    }
}
