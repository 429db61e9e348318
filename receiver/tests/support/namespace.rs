//! Network namespaces that end with the value: nothing names them but its descriptor.

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

/// Where a thread finds the namespace that it is in; `/proc/self` is the first thread's.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace.
pub struct Namespace(File);

impl Namespace {
    /// The one that this process is in.
    pub fn current() -> Self {
        Self(File::open(OWN).unwrap())
    }

    /// A new one, with its loopback up.
    pub fn new() -> Self {
        let made = || {
            // SAFETY: only this thread's network changes, which nothing else runs in.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            Self::current()
        };
        let namespace = thread::spawn(made).join().unwrap();
        namespace.ip("link set dev lo up");
        namespace
    }

    /// The same namespace by another descriptor.
    pub fn same(&self) -> Self {
        Self(self.0.try_clone().unwrap())
    }

    /// The number that tells it from others.
    pub fn inode(&self) -> u64 {
        self.0.metadata().unwrap().ino()
    }

    /// Its name for commands that take a path.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.0.as_raw_fd())
    }

    /// Runs something inside. Sockets made there stay in the namespace wherever they are used.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }

    /// Runs `ip` inside.
    pub fn ip(&self, arguments: &str) {
        self.command("ip", arguments);
    }

    /// Runs `tc` inside.
    pub fn tc(&self, arguments: &str) {
        self.command("tc", arguments);
    }

    /// Gives a virtual device a queue, which it has none of by itself.
    pub fn queue(&self, device: &str) {
        self.tc(&format!("qdisc add dev {device} root pfifo limit 1000"));
    }

    fn command(&self, program: &str, arguments: &str) {
        let output = self.run(|| Command::new(program).args(arguments.split_whitespace()).output().unwrap());
        assert!(output.status.success(), "{program} {arguments}: {output:?}");
    }
}
