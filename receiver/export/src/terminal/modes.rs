//! The terminal of this process: its modes, which are restored at any end, and the log that shares it.

use std::{
    collections::VecDeque,
    env,
    io::{self, Write},
    panic,
    sync::{
        Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::getpgrp,
    termios::{self, OptionalActions, Termios},
};

/// Starts the alternate screen without a cursor. The shell's screen stays as it is.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
/// Ends the attributes of text and the alternate screen, and shows the cursor.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?1049l\x1b[?25h";
/// The longest wait for a terminal that does not accept the end of the screen.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// The most lines of the log that wait for the end of the screen.
const LINES: usize = 500;

/// Standard input and output of this process. Clones share them.
///
/// On a terminal, the screen of [`super::open`] takes them over. The log then waits in memory, and is written to standard error once
/// the screen has ended.
#[derive(Clone)]
pub struct Terminal(Arc<Shared>);

struct Shared {
    /// The modes before the screen; `None` if no screen is possible.
    before: Option<Termios>,
    is_entered: AtomicBool,
    /// True if the log is on the terminal.
    shares: bool,
    log: Mutex<Waiting>,
}

/// Lines of the log that wait for the end of the screen.
#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    dropped: u64,
}

impl Terminal {
    /// Returns the standard input and output of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let before = is_interactive().then(|| termios::tcgetattr(io::stdin()).ok()).flatten();
        let shares = termios::isatty(io::stderr());
        Self(Arc::new(Shared { before, is_entered: AtomicBool::new(false), shares, log: Mutex::default() }))
    }

    /// Returns true if standard input and output are a terminal that this process may use for a screen.
    #[must_use]
    pub fn is_interactive(&self) -> bool {
        self.0.before.is_some()
    }

    /// Starts the screen: keys arrive without a line feed and are not displayed. Does nothing without a terminal. A panic of any thread
    /// ends the screen before it is reported.
    ///
    /// # Errors
    /// If the modes cannot be set.
    pub(super) fn enter(&self) -> io::Result<()> {
        let Some(before) = &self.0.before else { return Ok(()) };
        let mut modes = before.clone();
        modes.make_raw();
        self.restore_at_the_end();
        self.0.is_entered.store(true, Ordering::SeqCst);
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
        io::stdout().write_all(ENTER)?;
        io::stdout().flush()
    }

    /// Ends the screen, and writes the log that waited. Later calls do nothing.
    pub fn restore(&self) {
        let Some(before) = &self.0.before else { return };
        if !self.0.is_entered.swap(false, Ordering::SeqCst) {
            return;
        }
        // A terminal without a reader accepts no output. Its modes are restored without output.
        if is_writable() {
            // Not by the library's buffer: the thread of the screen may hold its lock.
            let _ = rustix::io::write(io::stdout(), LEAVE);
        }
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
        let waiting = std::mem::take(&mut *self.waiting());
        if waiting.dropped > 0 {
            let _ = writeln!(io::stderr(), "({} earlier lines of the log are not shown)", waiting.dropped);
        }
        for line in &waiting.lines {
            let _ = io::stderr().write_all(line);
        }
    }

    /// Restores the terminal at a panic and at the exit of the process, which may come without the end of the screen's thread.
    fn restore_at_the_end(&self) {
        static ONCE: Once = Once::new();
        let _ = SCREEN.set(self.clone());
        ONCE.call_once(|| {
            let report = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                restore_screen();
                report(panic);
            }));
            // SAFETY: the function takes no arguments, and does not unwind: it ignores errors.
            unsafe { libc::atexit(restore_screen) };
        });
    }

    /// Returns a writer to standard error that leaves the screen intact. Each write must consist of whole lines.
    #[must_use]
    pub fn log(&self) -> Log {
        Log(self.clone())
    }

    /// Returns the last line of the log that waits, without colours, and its number.
    pub(super) fn last_line(&self) -> Option<(u64, String)> {
        let waiting = self.waiting();
        let number = waiting.dropped + waiting.lines.len() as u64;
        waiting.lines.back().map(|line| (number, without_escapes(&String::from_utf8_lossy(line))))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The terminal with a screen.
static SCREEN: OnceLock<Terminal> = OnceLock::new();

extern "C" fn restore_screen() {
    if let Some(terminal) = SCREEN.get() {
        terminal.restore();
    }
}

/// Returns true if this process owns a terminal with a movable cursor, and reads its keys. A process in the background does not.
fn is_interactive() -> bool {
    let dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let owns = || termios::tcgetpgrp(io::stdout()).is_ok_and(|group| group == getpgrp());
    !dumb && termios::isatty(io::stdin()) && termios::isatty(io::stdout()) && owns()
}

fn is_writable() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::OUT)];
    poll(&mut polled, Some(&PATIENCE)).is_ok_and(|ready| ready > 0)
}

/// Removes the escape sequences of colours and the line feed.
fn without_escapes(line: &str) -> String {
    let mut parts = line.trim_end().split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

/// The writer of [`Terminal::log`].
pub struct Log(Terminal);

impl Write for Log {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let Self(Terminal(shared)) = self;
        if !(shared.shares && shared.is_entered.load(Ordering::SeqCst)) {
            return io::stderr().write_all(lines).map(|()| lines.len());
        }
        let mut waiting = self.0.waiting();
        waiting.lines.push_back(lines.to_vec());
        if waiting.lines.len() > LINES {
            waiting.lines.pop_front();
            waiting.dropped += 1;
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_log_lose_their_colours() {
        assert_eq!(without_escapes("\x1b[2m2026\x1b[0m \x1b[32m INFO\x1b[0m ready\n"), "2026  INFO ready");
    }

    #[test]
    fn without_a_terminal_nothing_is_entered_or_kept() {
        // Standard input of tests is no terminal, or the test's process is in the background.
        let shared = Shared { before: None, is_entered: AtomicBool::new(false), shares: true, log: Mutex::default() };
        let terminal = Terminal(Arc::new(shared));
        terminal.enter().expect("nothing to do");
        assert!(!terminal.is_interactive() && !terminal.0.is_entered.load(Ordering::SeqCst));
        terminal.restore();
        assert!(terminal.last_line().is_none());
    }

    #[test]
    fn the_log_waits_for_the_end_of_the_screen_within_a_limit() {
        let shared = Shared { before: None, is_entered: AtomicBool::new(true), shares: true, log: Mutex::default() };
        let terminal = Terminal(Arc::new(shared));
        for line in 0..LINES + 2 {
            terminal.log().write_all(format!("line {line}\n").as_bytes()).expect("memory");
        }
        assert_eq!(terminal.last_line(), Some((LINES as u64 + 2, format!("line {}", LINES + 1))));
        let waiting = terminal.waiting();
        assert_eq!((waiting.lines.len(), waiting.dropped), (LINES, 2));
    }
}
