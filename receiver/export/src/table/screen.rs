//! Draws the table on standard output, which the table shares with the log.

use std::{
    env,
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::termios;

use super::text::cut;

/// The line length for standard output that is not a terminal.
const WIDTH_OF_FILES: usize = 120;
/// The least width for a readable table.
const NARROWEST: usize = 40;

/// A screen that draws blocks: over each other on a terminal, one after another on a stream.
pub(super) struct Screen<W> {
    writer: W,
    kind: Kind,
    /// The last block above the cursor, on a terminal.
    block: String,
}

/// The kind of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A terminal with a movable cursor.
    Terminal,
    /// A pipe, a file, or a terminal without cursor movement.
    Stream,
}

/// Lines and columns of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: usize,
    /// The number of lines; `None` for a stream.
    pub(super) height: Option<usize>,
}

impl<W: Write> Screen<W> {
    pub(super) fn new(writer: W, kind: Kind) -> Self {
        Self { writer, kind, block: String::new() }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Draws a block. Its lines must not exceed the width of the screen.
    pub(super) fn draw(&mut self, block: &str, size: Size) -> io::Result<()> {
        if self.kind == Kind::Stream {
            write!(self.writer, "{block}\n\n")?;
            return self.writer.flush();
        }
        self.erase()?;
        let lines: Vec<&str> = block.lines().collect();
        // The cursor occupies one line; lines above the top of the screen cannot be overwritten.
        let room = size.height.unwrap_or(usize::MAX).saturating_sub(1).max(1);
        let fits = if lines.len() > room { room - 1 } else { lines.len() };
        for line in &lines[..fits] {
            self.block.push_str(line);
            self.block.push('\n');
        }
        if fits < lines.len() {
            let hidden = lines.len() - fits;
            self.block.push_str(&cut(&format!("… {hidden} more lines; enlarge the terminal to see them"), size.width));
            self.block.push('\n');
        }
        self.show()
    }

    /// Writes log lines on the same terminal above the block.
    pub(super) fn log(&mut self, lines: &[u8], log: &mut impl Write) -> io::Result<()> {
        let block = std::mem::take(&mut self.block);
        let erased = self.erase_lines(&block);
        log.write_all(lines)?;
        log.flush()?;
        self.block = block;
        erased.and_then(|()| self.show())
    }

    fn erase(&mut self) -> io::Result<()> {
        let block = std::mem::take(&mut self.block);
        self.erase_lines(&block)
    }

    fn erase_lines(&mut self, block: &str) -> io::Result<()> {
        match block.lines().count() {
            0 => Ok(()),
            lines => write!(self.writer, "\x1b[{lines}A\r\x1b[J").and_then(|()| self.writer.flush()),
        }
    }

    fn show(&mut self) -> io::Result<()> {
        self.writer.write_all(self.block.as_bytes())?;
        self.writer.flush()
    }
}

/// Returns the kind of standard output.
pub(super) fn kind_of_stdout() -> Kind {
    let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    if termios::isatty(io::stdout()) && !dumb { Kind::Terminal } else { Kind::Stream }
}

/// Returns the current size of standard output. Users resize terminals while the table is live.
pub(super) fn size_of_stdout(kind: Kind) -> Size {
    let window = termios::tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    match (kind, window) {
        (Kind::Terminal, Some(window)) => {
            Size { width: usize::from(window.ws_col).max(NARROWEST), height: Some(window.ws_row.into()) }
        }
        (Kind::Terminal, None) => Size { width: 80, height: Some(24) },
        (Kind::Stream, _) => Size { width: WIDTH_OF_FILES, height: None },
    }
}

/// Returns true on a terminal, unless `NO_COLOR` is set to a non-empty value.
pub(super) fn colour(kind: Kind) -> bool {
    kind == Kind::Terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Standard output for the table. A log on this terminal must be written through [`Self::log`], or the table
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
