//! Processes of this binary that carry out an attack or are its victims.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, UdpSocket},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::{frozen, protocol, separation, slow};

/// The variable that selects the role of this process.
const ROLE: &str = "UNDERCURRENT_TEST_ROLE";
/// The arguments that run only [`plays_a_role`], on the first thread.
const ALONE: [&str; 5] = ["--exact", "support::player::plays_a_role", "--nocapture", "--test-threads", "1"];
/// Moves the process into the cgroups of the first files, then executes the arguments after `--`.
const JOIN: &str = r#"while [ "$1" != -- ]; do echo $$ >"$1" || exit; shift; done; shift; exec "$@""#;
/// The prefix of a role's output lines; other lines come from the test harness.
const MARK: &str = "> ";

/// A process that plays a role. Dropping the value kills it.
pub struct Player {
    process: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Player {
    /// Starts a role in the cgroups with these directories, and waits for its first line.
    pub fn start(role: &str, cgroups: &[PathBuf], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", JOIN, "sh"]).args(cgroups.iter().map(|cgroup| cgroup.join("cgroup.procs"))).arg("--");
        command.arg(env::current_exe().unwrap()).args(ALONE);
        command.env(ROLE, role).envs(variables.iter().copied());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let (requests, replies) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut player = Self { process, requests, replies };
        assert_eq!(player.reply(), "ready");
        player
    }

    /// Sends a request, and returns the reply.
    pub fn ask(&mut self, request: &str) -> String {
        self.request(request);
        self.reply()
    }

    /// Sends a request that has no reply.
    pub fn request(&mut self, request: &str) {
        writeln!(self.requests, "{request}").unwrap();
    }

    fn reply(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.replies.read_line(&mut line).unwrap(), 0, "the role ended: {:?}", self.process.wait());
            if let Some(reply) = line.trim_end().strip_prefix(MARK) {
                return reply.to_owned();
            }
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Replies to requests until the test ends.
pub fn serve(mut reply: impl FnMut(&str) -> String) {
    print("ready");
    for request in std::io::stdin().lines() {
        print(&reply(&request.unwrap()));
    }
}

/// Sends the requested number of datagrams to its own socket, and reads them.
fn talk() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    serve(|request| {
        for _ in 0..request.parse().unwrap() {
            socket.send(&[0x55; 100]).unwrap();
            socket.recv(&mut [0; 100]).unwrap();
        }
        request.to_owned()
    });
}

/// The newline comes first because the harness has begun a line.
fn print(line: &str) {
    println!("\n{MARK}{line}");
}

/// Plays the role that the environment selects. Without a role, checks that a role ends with its player.
#[test]
fn plays_a_role() {
    let role = env::var(ROLE);
    if role.is_ok() {
        // A killed test process drops no player.
        set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    }
    match role.as_deref() {
        Ok("echo") => serve(str::to_owned),
        Ok("talk") => talk(),
        Ok(frozen::ROLE) => frozen::play(),
        Ok(protocol::ROLE) => protocol::play(),
        Ok(separation::ROLE) => separation::play(),
        Ok(slow::ROLE) => slow::play(),
        Ok(role) => panic!("no role has the name {role}"),
        Err(_) => {
            let mut player = Player::start("echo", &[], &[]);
            assert_eq!(player.ask("one"), "one");
            let process = player.process.id();
            drop(player);
            assert!(!Path::new(&format!("/proc/{process}")).exists());
        }
    }
}
