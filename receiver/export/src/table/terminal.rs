//! Shares standard output between the table and the log.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::screen::{Screen, kind_of_stdout};

/// Standard output for the table. A log on the same terminal must be written through [`Self::log`], or the table
/// overwrites it.
#[derive(Clone)]
pub struct Terminal(Arc<Mutex<Screen<io::Stdout>>>);

impl Terminal {
    /// Returns the standard output of this process.
    #[must_use]
    pub fn stdout() -> Self {
        Self(Arc::new(Mutex::new(Screen::new(io::stdout(), kind_of_stdout()))))
    }

    /// Returns a writer to standard error that keeps the table below the log. Each write must consist of whole
    /// lines.
    #[must_use]
    pub fn log(&self) -> Log {
        Log(self.clone())
    }

    pub(super) fn screen(&self) -> MutexGuard<'_, Screen<io::Stdout>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer of [`Terminal::log`].
pub struct Log(Terminal);

impl Write for Log {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        // Drawing may block on a stopped terminal; logging must not block.
        let written = match self.0.0.try_lock() {
            Ok(mut screen) => screen.log(lines, &mut io::stderr()),
            Err(_) => io::stderr().write_all(lines),
        };
        written.map(|()| lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
