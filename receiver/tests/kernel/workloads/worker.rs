//! Processes in separate cgroups that perform socket operations for a test.

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
    message::{self, Order, Reply, Turns, accept, receive, send},
    sockets::{self, Transport},
};

/// The variable with the path of the test's socket.
const ASKER: &str = "UNDERCURRENT_TEST_ASKER";
/// Moves the process into the cgroups of the first files, then executes the arguments after `--`.
const JOIN: &str = r#"while [ "$1" != -- ]; do echo $$ >"$1" || exit; shift; done; shift; exec "$@""#;

/// A process of the test. It ends when the value is dropped, or after a timeout without orders.
pub struct Worker {
    process: Child,
    /// The connection to the worker, once it has started.
    asked: Option<OwnedFd>,
    listener: OwnedFd,
    _folder: TempDir,
}

impl Worker {
    /// Starts a worker in the cgroups with these directories and in a network namespace.
    pub fn start(cgroups: &[PathBuf], namespace: &Namespace) -> Self {
        Self::start_with(cgroups, namespace, &[])
    }

    /// Starts a worker with more variables.
    pub fn start_with(cgroups: &[PathBuf], namespace: &Namespace, variables: &[(&str, &str)]) -> Self {
        let mut worker = Self::start_by(|_| Vec::new(), cgroups, namespace, variables);
        worker.arrive();
        worker
    }

    /// Starts a command that starts the worker later. The command gets the variable to pass on.
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

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the worker has connected.
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

    /// Moves the worker into other cgroups.
    pub fn join(&self, cgroups: &[PathBuf]) {
        let Reply::Done = self.ask(&Order::Join(cgroups.to_vec())) else { unreachable!() };
    }

    /// Creates a socket in the worker. A TCP socket listens.
    pub fn bind(&self, transport: Transport, address: IpAddr) -> (usize, SocketAddr) {
        let Reply::Bound(socket, address) = self.ask(&Order::Bind(transport, address)) else { unreachable!() };
        (socket, address)
    }

    /// Accepts the next connection.
    pub fn accept(&self, listener: usize) -> usize {
        let Reply::Socket(socket) = self.ask(&Order::Accept(listener)) else { unreachable!() };
        socket
    }

    /// Reads and answers messages, while `meanwhile` runs in the test.
    pub fn answers(&self, socket: usize, messages: usize, meanwhile: impl FnOnce()) {
        self.begin(&Order::Answer(socket, messages));
        meanwhile();
        let (Reply::Done, _) = self.end() else { unreachable!() };
    }

    /// Reads and answers messages of a connection. Returns TCP's round-trip time at each read in microseconds.
    pub fn times(&self, socket: usize, messages: usize, meanwhile: impl FnOnce()) -> Vec<u32> {
        self.begin(&Order::Time(socket, messages));
        meanwhile();
        let (Reply::Times(times), _) = self.end() else { unreachable!() };
        times
    }

    /// Opens a raw socket that gets the TCP segments to an address.
    pub fn overhear(&self, address: IpAddr) {
        let Reply::Done = self.ask(&Order::Overhear(address)) else { unreachable!() };
    }

    /// Connects to an address. Returns the own address too.
    pub fn connect(&self, address: SocketAddr) -> (usize, SocketAddr) {
        let Reply::Bound(socket, own) = self.ask(&Order::Connect(address)) else { unreachable!() };
        (socket, own)
    }

    /// Connects to an address that refuses.
    pub fn refused(&self, address: SocketAddr) {
        let Reply::Done = self.ask(&Order::Refused(address)) else { unreachable!() };
    }

    /// Connects to an address that does not answer within a time.
    pub fn unanswered(&self, address: SocketAddr, limit: Duration) {
        let Reply::Done = self.ask(&Order::Unanswered(address, limit)) else { unreachable!() };
    }

    /// Sends to the other end of a connection, which does not answer within a time.
    pub fn abandoned(&self, socket: usize, limit: Duration) {
        let Reply::Done = self.ask(&Order::Abandoned(socket, limit)) else { unreachable!() };
    }

    /// Ends the direction in which a connection sends.
    pub fn finish(&self, socket: usize) {
        let Reply::Done = self.ask(&Order::Finish(socket)) else { unreachable!() };
    }

    /// Closes a socket.
    pub fn close(&self, socket: usize) {
        let Reply::Done = self.ask(&Order::Close(socket)) else { unreachable!() };
    }

    /// Takes turns with another worker. Returns the times of both in nanoseconds.
    pub fn converse(
        &self,
        (socket, turns): (usize, Turns),
        other: &Self,
        (at, others): (usize, Turns),
    ) -> [Vec<u64>; 2] {
        self.begin(&Order::Converse(socket, turns));
        other.begin(&Order::Converse(at, others));
        [self, other].map(|worker| {
            let (Reply::Turns(times), _) = worker.end() else { unreachable!() };
            times
        })
    }

    /// Passes a socket's descriptor to another worker.
    pub fn pass(&self, socket: usize, to: &Self) -> usize {
        self.begin(&Order::Give(socket));
        let (_, descriptor) = self.end();
        send(to.asked(), &Order::Take, Some(descriptor.unwrap().as_fd()));
        let (Reply::Socket(socket), _) = to.end() else { unreachable!() };
        socket
    }

    /// Executes the worker again with all sockets in their order.
    pub fn activate(&mut self) {
        self.begin(&Order::Activate);
        self.arrive();
    }

    /// Waits until the worker ends.
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

/// The arguments that run only the worker in this binary.
const THIS: [&str; 5] =
    ["--exact", "workloads::worker::workers_end_with_whoever_asks", "--nocapture", "--test-threads", "1"];

/// Acts as the worker in a worker's process, and otherwise tests that workers end.
#[test]
fn workers_end_with_whoever_asks() {
    match env::var_os(ASKER) {
        Some(path) => sockets::serve(Path::new(&path)),
        None => assert!(Worker::start(&[], &Namespace::current()).dismiss().success()),
    }
}
