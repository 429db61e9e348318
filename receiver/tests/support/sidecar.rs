//! The sidecar's binary, running.

use std::{
    cell::{Ref, RefCell},
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::{NamedTempFile, TempDir};

use super::{
    line::Line,
    processes::family,
    surroundings::{often, patience, wait_for},
};

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_undercurrent");
/// Names the ways to listen to the kernel that every sidecar is to do without, so that alternates are tested.
const AVOID: &str = "UNDERCURRENT_TEST_AVOID";
/// What it logs once everything is attached.
const READY: &str = "measuring:";

/// A command that no variable of the test's own surroundings changes.
pub fn command(binary: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(binary);
    let variables = std::env::vars_os().map(|(name, _)| name);
    let meant = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("OTEL_") || name == "RUST_LOG";
    for name in variables.filter(meant) {
        command.env_remove(name);
    }
    command
}

/// A configuration file of such content.
pub fn file(configuration: &str) -> NamedTempFile {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    fs::write(file.path(), configuration).unwrap();
    file
}

/// A sidecar that measures. It is killed when the value goes.
pub struct Sidecar {
    child: Child,
    folder: TempDir,
    output: RefCell<Output>,
    /// Lines of its log after it was ready.
    log: Receiver<String>,
}

impl Sidecar {
    /// Starts it with OTLP/JSON into a file at this interval, and waits until it measures.
    pub fn start(interval: &str) -> Self {
        Self::start_with(interval, &[], &[])
    }

    /// The same with more arguments and variables.
    pub fn start_with(interval: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = command(BINARY);
        command.envs(variables.iter().copied());
        Self::start_by(command, interval, arguments)
    }

    /// The same, often, with a configuration file of such content.
    pub fn configured(configuration: &str) -> Self {
        let file = file(configuration);
        Self::start_with(often(), &["--config", file.path().to_str().unwrap()], &[])
    }

    /// The same by a command that becomes the sidecar.
    pub fn start_by(mut command: Command, interval: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let output = format!("json={}", folder.path().join("lines").display());
        command.args(["run", "--output", &output, "--interval", interval]).args(arguments);
        command.args(
            std::env::var(AVOID).iter().flat_map(|means| means.split_whitespace()).flat_map(|means| ["--avoid", means]),
        );
        // Counts are compared to the packet, however fast a test's come.
        command.args(["--sampling", "all"].into_iter().filter(|_| !arguments.contains(&"--sampling")));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, log) = mpsc::channel();
        // Read to its end, or the sidecar would block on a full pipe.
        thread::spawn(move || stderr.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));
        let sidecar = Self { child, folder, output: RefCell::default(), log };
        sidecar.wait_until_ready();
        sidecar
    }

    fn wait_until_ready(&self) {
        let (start, limit, mut said) = (Instant::now(), patience(Duration::from_secs(15)), Vec::new());
        while let Ok(line) = self.log.recv_timeout(limit.saturating_sub(start.elapsed())) {
            if line.contains(READY) {
                return;
            }
            said.push(line);
        }
        panic!("the sidecar did not begin to measure within {limit:?}: {said:?}");
    }

    /// Waits until its log contains a text, and returns the log since the last call.
    pub fn logs(&self, text: &str) -> String {
        let mut log = String::new();
        wait_for(&format!("the log to contain {text:?}"), patience(Duration::from_secs(5)), || {
            self.log.try_iter().for_each(|line| log.extend([line.as_str(), "\n"]));
            log.contains(text).then_some(())
        });
        log
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Files, sockets and the kernel's objects that its processes have open.
    pub fn descriptors(&self) -> usize {
        // A part may be replaced meanwhile.
        let folders = family(self.pid()).into_iter().map(|process| fs::read_dir(format!("/proc/{process}/fd")));
        folders.flatten().map(Iterator::count).sum()
    }

    /// The lines that are complete.
    pub fn lines(&self) -> Ref<'_, [Line]> {
        self.output.borrow_mut().read(&self.folder.path().join("lines"));
        Ref::map(self.output.borrow(), |output| output.lines.as_slice())
    }

    /// A snapshot that begins after this call.
    pub fn snapshot(&self) -> Line {
        let now = wall_clock();
        self.line("a snapshot", |line| line.time > now)
    }

    /// Waits until the last line is such a one.
    pub fn line(&self, what: &str, such: impl Fn(&Line) -> bool) -> Line {
        let last = || self.lines().last().filter(|line| such(line)).cloned();
        wait_for(what, patience(Duration::from_secs(5)), last)
    }

    /// Asks it to end, and says how it did and how long that took.
    pub fn signal(&mut self, signal: Signal) -> (ExitStatus, Duration) {
        let start = Instant::now();
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        (self.wait(), start.elapsed())
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the sidecar to end", patience(Duration::from_secs(10)), || self.child.try_wait().unwrap())
    }

    /// Ends it, and returns all lines.
    pub fn stop(mut self) -> Vec<Line> {
        let (status, _) = self.signal(Signal::TERM);
        assert!(status.success(), "{status}");
        self.lines().to_vec()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the sidecar wrote. Each line is parsed once: that takes longer than to write it.
#[derive(Default)]
struct Output {
    /// Bytes of the lines.
    position: usize,
    lines: Vec<Line>,
}

impl Output {
    fn read(&mut self, path: &Path) {
        let text = fs::read_to_string(path).unwrap();
        let new = &text[self.position..];
        // What follows the last newline is still being written.
        let whole = new.rfind('\n').map_or(0, |end| end + 1);
        self.lines.extend(new[..whole].lines().map(Line::parse));
        self.position += whole;
    }
}

/// Nanoseconds of the wall clock.
pub fn wall_clock() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}
