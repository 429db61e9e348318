//! Runs the sidecar's binary.

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
    span::Span,
    surroundings::{often, patience, wait_for},
};

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_undercurrent");
/// A variable with the kinds of hooks that every sidecar must avoid, to test alternates.
const AVOID: &str = "UNDERCURRENT_TEST_AVOID";
/// A variable with the level of every sidecar whose test names none.
const LEVEL: &str = "UNDERCURRENT_TEST_LEVEL";
/// A part of the log message after all programs are attached.
pub const READY: &str = " signals: ";

/// Returns a command without the variables of the test's environment.
pub fn command(binary: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(binary);
    let variables = std::env::vars_os().map(|(name, _)| name);
    let meant = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("OTEL_") || name == "RUST_LOG";
    for name in variables.filter(meant) {
        command.env_remove(name);
    }
    command
}

/// Creates a configuration file with this content.
pub fn file(configuration: &str) -> NamedTempFile {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    fs::write(file.path(), configuration).unwrap();
    file
}

/// A running sidecar. Dropping the value kills it.
pub struct Sidecar {
    child: Child,
    folder: TempDir,
    output: RefCell<Output>,
    /// Lines of the log after the sidecar was ready.
    log: Receiver<String>,
}

impl Sidecar {
    /// Starts a sidecar with OTLP/JSON on standard output at this interval, and waits until it measures.
    pub fn start(interval: &str) -> Self {
        Self::start_with(interval, &[], &[])
    }

    /// Starts a sidecar with more arguments and variables.
    pub fn start_with(interval: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = command(BINARY);
        command.envs(variables.iter().copied());
        Self::start_by(command, interval, arguments)
    }

    /// Starts a sidecar with a short interval and a configuration file of this content.
    pub fn configured(configuration: &str) -> Self {
        let file = file(configuration);
        Self::start_with(often(), &["--config", file.path().to_str().unwrap()], &[])
    }

    /// Starts a sidecar by a command that executes it.
    pub fn start_by(mut command: Command, interval: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lines = fs::File::create(folder.path().join("lines")).unwrap();
        command.args(["run", "--output", "json", "--interval", interval]).args(arguments);
        command.args(
            std::env::var(AVOID).iter().flat_map(|means| means.split_whitespace()).flat_map(|means| ["--avoid", means]),
        );
        // Most tests concern details.
        let level = std::env::var(LEVEL).unwrap_or_else(|_| "detailed".to_owned());
        command.args(["--level", &level].into_iter().filter(|_| !arguments.contains(&"--level")));
        // The tests compare exact counts, so no packet may be excluded by sampling.
        command.args(["--sampling", "all"].into_iter().filter(|_| !arguments.contains(&"--sampling")));
        command.stdout(lines).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, log) = mpsc::channel();
        // A thread reads the log to its end, because the sidecar would block on a full pipe.
        thread::spawn(move || stderr.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));
        let sidecar = Self { child, folder, output: RefCell::default(), log };
        sidecar.wait_until_ready();
        sidecar
    }

    fn wait_until_ready(&self) {
        let (start, limit, mut said) = (Instant::now(), patience(Duration::from_secs(60)), Vec::new());
        while let Ok(line) = self.log.recv_timeout(limit.saturating_sub(start.elapsed())) {
            if line.contains(READY) {
                return;
            }
            said.push(line);
        }
        panic!("the sidecar did not begin to measure within {limit:?}: {said:?}");
    }

    /// Waits until the log contains a text, and returns the log since the last call.
    pub fn logs(&self, text: &str) -> String {
        let mut log = String::new();
        wait_for(&format!("the log to contain {text:?}"), patience(Duration::from_secs(5)), || {
            self.log.try_iter().for_each(|line| log.extend([line.as_str(), "\n"]));
            log.contains(text).then_some(())
        });
        log
    }

    /// Returns the id of the sidecar's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the number of open files, sockets and kernel objects of its processes.
    pub fn descriptors(&self) -> usize {
        // A part may be replaced meanwhile.
        let folders = family(self.pid()).into_iter().map(|process| fs::read_dir(format!("/proc/{process}/fd")));
        folders.flatten().map(Iterator::count).sum()
    }

    /// Returns the complete lines.
    pub fn lines(&self) -> Ref<'_, [Line]> {
        self.output.borrow_mut().read(&self.folder.path().join("lines"));
        Ref::map(self.output.borrow(), |output| output.lines.as_slice())
    }

    /// Returns the spans of the complete lines.
    pub fn spans(&self) -> Ref<'_, [Span]> {
        drop(self.lines());
        Ref::map(self.output.borrow(), |output| output.spans.as_slice())
    }

    /// Waits for a snapshot that begins after this call.
    pub fn snapshot(&self) -> Line {
        let now = wall_clock();
        self.line("a snapshot", |line| line.time > now)
    }

    /// Waits until the last line satisfies a condition.
    pub fn line(&self, what: &str, such: impl Fn(&Line) -> bool) -> Line {
        let last = || self.lines().last().filter(|line| such(line)).cloned();
        wait_for(what, patience(Duration::from_secs(5)), last)
    }

    /// Sends a signal, and returns the exit status and the time until the end.
    pub fn signal(&mut self, signal: Signal) -> (ExitStatus, Duration) {
        let start = Instant::now();
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        (self.wait(), start.elapsed())
    }

    /// Waits until the sidecar ends.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the sidecar to end", patience(Duration::from_secs(10)), || self.child.try_wait().unwrap())
    }

    /// Ends the sidecar, and returns all lines.
    pub fn stop(mut self) -> Vec<Line> {
        let (status, _) = self.signal(Signal::TERM);
        assert!(status.success(), "{status}");
        self.lines().to_vec()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // The child may be another program that has started the sidecar.
        for process in family(self.child.id()) {
            let _ = Pid::from_raw(process.cast_signed()).map(|process| kill_process(process, Signal::KILL));
        }
        let _ = self.child.wait();
    }
}

/// The sidecar's output. Each line is parsed once, because parsing takes longer than writing.
#[derive(Default)]
struct Output {
    /// The position after the last parsed line in bytes.
    position: usize,
    lines: Vec<Line>,
    spans: Vec<Span>,
}

impl Output {
    fn read(&mut self, path: &Path) {
        let text = fs::read_to_string(path).unwrap();
        let new = &text[self.position..];
        // The text after the last newline is incomplete.
        let whole = new.rfind('\n').map_or(0, |end| end + 1);
        for line in new[..whole].lines() {
            match Span::parse(line) {
                Some(spans) => self.spans.extend(spans),
                None => self.lines.push(Line::parse(line)),
            }
        }
        self.position += whole;
    }
}

/// Returns nanoseconds of the wall clock.
pub fn wall_clock() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}
