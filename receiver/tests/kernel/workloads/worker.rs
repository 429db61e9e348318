//! Processes in cgroups of their own, which do with sockets what a test asks for.

use std::{
    env,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::net::Shutdown;
use tempfile::TempDir;

use super::{
    super::support::{
        namespace::Namespace,
        surroundings::{patience, wait_for},
    },
    message::{self, Order, Reply, accept, receive, send},
    sockets::{self, Transport},
};

/// Where a worker finds who asks.
const ASKER: &str = "UNDERCURRENT_TEST_ASKER";
/// Moves itself into the cgroups whose files come first, then becomes what comes after `--`.
const JOIN: &str = r#"while [ "$1" != -- ]; do echo $$ >"$1" || exit; shift; done; shift; exec "$@""#;

/// A process of the test's. It ends with the value, or when it is asked nothing for a while.
pub struct Worker {
    process: Child,
    /// Where it is asked, once it is there.
    asked: Option<OwnedFd>,
    listener: OwnedFd,
    _folder: TempDir,
}

impl Worker {
    /// Starts one in cgroups, by their directories, and in a network namespace.
    pub fn start(cgroups: &[PathBuf], namespace: &Namespace) -> Self {
        Self::start_with(cgroups, namespace, &[])
    }

    /// The same with more variables.
    pub fn start_with(cgroups: &[PathBuf], namespace: &Namespace, variables: &[(&str, &str)]) -> Self {
        let mut worker = Self::start_by(|_| Vec::new(), cgroups, namespace, variables);
        worker.arrive();
        worker
    }

    /// Starts a command that starts the worker when it sees fit; it is told of the variable that must be passed on.
    pub fn start_by(
        command: impl FnOnce(&str) -> Vec<String>,
        cgroups: &[PathBuf],
        namespace: &Namespace,
        variables: &[(&str, &str)],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("asker");
        let listener = message::listen(&path);
        let mut join = Command::new("sh");
        join.args(["-c", JOIN, "sh"]).args(cgroups.iter().map(|cgroup| cgroup.join("cgroup.procs"))).arg("--");
        join.args(command(ASKER)).arg(env::current_exe().unwrap()).args(THIS);
        join.envs(variables.iter().copied()).env(ASKER, &path).stdin(Stdio::null()).stdout(Stdio::null());
        let process = namespace.run(|| join.spawn().unwrap());
        Self { process, asked: None, listener, _folder: folder }
    }

    /// Waits until it is there.
    pub fn arrive(&mut self) {
        self.asked = Some(accept(&self.listener));
    }

    fn asked(&self) -> &OwnedFd {
        self.asked.as_ref().expect("the worker is there")
    }

    fn ask(&self, order: &Order) -> Reply {
        self.begin(order);
        self.end().0
    }

    fn begin(&self, order: &Order) {
        send(self.asked(), order, None);
    }

    fn end(&self) -> (Reply, Option<OwnedFd>) {
        receive(self.asked()).expect("the worker ended, and said why")
    }

    /// Moves it into other cgroups.
    pub fn join(&self, cgroups: &[PathBuf]) {
        let Reply::Done = self.ask(&Order::Join(cgroups.to_vec())) else { unreachable!() };
    }

    /// Has it make a socket, which listens where that is TCP's.
    pub fn bind(&self, transport: Transport, address: IpAddr) -> (usize, SocketAddr) {
        let Reply::Bound(socket, address) = self.ask(&Order::Bind(transport, address)) else { unreachable!() };
        (socket, address)
    }

    /// Has it take the next connection.
    pub fn accept(&self, listener: usize) -> usize {
        let Reply::Socket(socket) = self.ask(&Order::Accept(listener)) else { unreachable!() };
        socket
    }

    /// Has it read and answer so many messages, while something happens.
    pub fn answers(&self, socket: usize, messages: usize, meanwhile: impl FnOnce()) {
        self.begin(&Order::Answer(socket, messages));
        meanwhile();
        let (Reply::Done, _) = self.end() else { unreachable!() };
    }

    /// The same of a connection; at each read, what TCP says of its round-trip time, in microseconds.
    pub fn times(&self, socket: usize, messages: usize, meanwhile: impl FnOnce()) -> Vec<u32> {
        self.begin(&Order::Time(socket, messages));
        meanwhile();
        let (Reply::Times(times), _) = self.end() else { unreachable!() };
        times
    }

    /// Passes a descriptor of one of its sockets to another worker.
    pub fn pass(&self, socket: usize, to: &Self) -> usize {
        self.begin(&Order::Give(socket));
        let (_, descriptor) = self.end();
        send(to.asked(), &Order::Take, Some(descriptor.unwrap().as_fd()));
        let (Reply::Socket(socket), _) = to.end() else { unreachable!() };
        socket
    }

    /// Has it become another process that is passed all sockets, in their order.
    pub fn activate(&mut self) {
        self.begin(&Order::Activate);
        self.arrive();
    }

    /// Lets it end.
    pub fn dismiss(&mut self) -> ExitStatus {
        rustix::net::shutdown(self.asked(), Shutdown::Both).unwrap();
        wait_for("the worker to end", patience(Duration::from_secs(5)), || self.process.try_wait().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The arguments that make this binary a worker.
const THIS: [&str; 5] =
    ["--exact", "workloads::worker::workers_end_with_whoever_asks", "--nocapture", "--test-threads", "1"];

/// In a worker's process it is the worker, and otherwise a test of one.
#[test]
fn workers_end_with_whoever_asks() {
    match env::var_os(ASKER) {
        Some(path) => sockets::serve(Path::new(&path)),
        None => assert!(Worker::start(&[], &Namespace::current()).dismiss().success()),
    }
}
