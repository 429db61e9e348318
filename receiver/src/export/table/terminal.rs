//! Standard output, shared by the table and the log.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::screen::{Screen, kind_of_stdout};

/// Standard output as the table draws on it. A log that goes to the same terminal must be written through
/// [`Self::log`], or the table is drawn over it.
#[derive(Clone)]
pub struct Terminal(Arc<Mutex<Screen<io::Stdout>>>);

impl Terminal {
    /// Standard output of this process.
    #[must_use]
    pub fn stdout() -> Self {
        Self(Arc::new(Mutex::new(Screen::new(io::stdout(), kind_of_stdout()))))
    }

    /// A writer to standard error that keeps the table below what it writes. One write is one or more whole lines.
    #[must_use]
    pub fn log(&self) -> Log {
        Log(self.clone())
    }

    pub(super) fn screen(&self) -> MutexGuard<'_, Screen<io::Stdout>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Terminal::log`].
pub struct Log(Terminal);

impl Write for Log {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        // A table that is being drawn may wait for a terminal that is stopped; whoever logs must not.
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
