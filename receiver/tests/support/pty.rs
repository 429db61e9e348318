//! A program in a pseudo-terminal, with a terminal emulator that shows its screen.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    num::NonZero,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, Signal, ioctl_tiocsctty, kill_process, setsid},
    pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{LocalModes, OutputModes, Termios, Winsize, tcgetattr, tcsetwinsize},
};

/// The longest wait for a screen or for the end of a program.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running program in a pseudo-terminal. Dropping the value kills it.
pub struct Pty {
    child: Child,
    keys: File,
    /// The program's end, which keeps the modes after the program has ended.
    program: OwnedFd,
    before: Termios,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Pty {
    /// Starts a program as the leader of a session in a new pseudo-terminal.
    pub fn start(mut command: Command, (rows, columns): (u16, u16)) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).expect("a pseudo-terminal");
        unlockpt(&ours).expect("unlocked");
        let program = ioctl_tiocgptpeer(&ours, flags).expect("the other end");
        let end = || program.try_clone().expect("a descriptor");
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color");
        let lead = || {
            setsid()?;
            ioctl_tiocsctty(io::stdin())?;
            Ok(())
        };
        // SAFETY: both calls are single system calls, which are safe between fork and exec.
        unsafe { command.pre_exec(lead) };
        resize(&ours, rows, columns);
        let before = tcgetattr(&program).expect("modes");
        let child = command.spawn().expect("a program");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(lines(rows), lines(columns), 0)));
        let (keys, shown) = (File::from(ours), Arc::clone(&screen));
        let mut output = keys.try_clone().expect("a descriptor");
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length) = output.read(&mut bytes) {
                shown.lock().expect("a screen").process(&bytes[..length]);
            }
        });
        Self { child, keys, program, before, screen }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("pressed");
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().expect("a screen").screen_mut().set_size(lines(rows), lines(columns));
        resize(&self.keys, rows, columns);
    }

    /// Returns the text of the screen.
    pub fn text(&self) -> String {
        self.screen.lock().expect("a screen").screen().contents()
    }

    /// Returns true if the program uses the alternate screen.
    pub fn is_alternate(&self) -> bool {
        self.screen.lock().expect("a screen").screen().alternate_screen()
    }

    /// Waits until the text of the screen satisfies a condition, and returns it.
    pub fn shows(&self, what: &str, such: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let text = self.text();
            if such(&text) {
                return text;
            }
            assert!(start.elapsed() < PATIENCE, "the screen does not show {what}:\n{text}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("sent");
    }

    /// Waits for the end of the program.
    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the program does not end:\n{}", self.text());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asserts that the terminal has the modes and the screen from before the program.
    pub fn assert_restored(&self) {
        let now = tcgetattr(&self.program).expect("modes");
        assert_eq!(now.local_modes, self.before.local_modes);
        assert_eq!((now.input_modes, now.output_modes), (self.before.input_modes, self.before.output_modes));
        assert!(now.local_modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG));
        assert!(now.output_modes.contains(OutputModes::OPOST));
        self.shows("the shell's screen", |_| !self.is_alternate());
        assert!(!self.screen.lock().expect("a screen").screen().hide_cursor(), "the cursor is hidden");
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a screen has lines")
}

fn resize(terminal: &impl std::os::fd::AsFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("resized");
}
