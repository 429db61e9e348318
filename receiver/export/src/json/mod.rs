//! Writes OTLP/JSON to standard output or to a file, one request per line.

#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, BufWriter, ErrorKind, Seek as _, Write},
    path::PathBuf,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Bus, Output, OutputFile, Published, Statistics, Subscription, Topics,
    encoding::{JSON_REQUEST_LIMIT, json_tree},
    health::Health,
    output_file::is_torn,
    spans,
    split::requests,
};
use crate::telemetry::{ErrorType, Snapshot, SpanBatch};

/// The destination of the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A file. Lines are appended.
    File(PathBuf),
}

/// Errors of opening a file for output.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file could not be opened.
    #[error("cannot write to `{}`: {source}; {}", path.display(), cure(source))]
    Open {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Opens the output and subscribes it to the bus. Requires a tokio runtime.
///
/// # Errors
/// If the file cannot be opened for writing.
pub fn open(bus: &Bus, target: Target) -> Result<Output, OpenError> {
    let statistics = Statistics::new("json");
    let counted = statistics.clone();
    let subscription = bus.subscribe(Topics::ALL, &statistics);
    Ok(match target {
        Target::Stdout => {
            let name = "standard output".to_owned();
            let sink = Lines { name, sink: io::stdout(), torn: false, file: None, statistics: counted };
            Output::in_thread(statistics, move || sink.run(subscription))
        }
        Target::File(path) => {
            let opened = OutputFile::open(&path).map_err(|source| OpenError::Open { path: path.clone(), source });
            let (sink, file) = opened?;
            let torn = is_torn(&sink, &path);
            let name = format!("`{}`", path.display());
            let sink = Lines { name, sink, torn, file: Some(file.clone()), statistics: counted };
            Output::in_thread(statistics, move || sink.run(subscription)).with_file(file)
        }
    })
}

/// Writes the requests of a snapshot, one per line.
///
/// # Errors
/// If the writer fails. It may have written a part of the requests.
pub fn write_lines(snapshot: &Snapshot, mut writer: impl Write) -> io::Result<()> {
    for part in requests(snapshot, JSON_REQUEST_LIMIT) {
        serde_json::to_writer(&mut writer, &json_tree(&part.request)?)?;
        writer.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes spans as one request on one line.
///
/// # Errors
/// If the writer fails. It may have written a part of the line.
fn write_spans(batch: &SpanBatch, mut writer: impl Write) -> io::Result<()> {
    for (request, _) in spans::requests(batch, JSON_REQUEST_LIMIT) {
        serde_json::to_writer(&mut writer, &json_tree(&request)?)?;
        writer.write_all(b"\n")?;
    }
    Ok(())
}

/// A destination for whole snapshots.
trait Sink: Write {
    /// Removes the bytes after `start`, so that no incomplete line remains.
    fn rewind_to(&mut self, start: u64) -> io::Result<()>;
    /// Returns the position of the next line.
    fn start(&mut self) -> io::Result<u64>;
    /// Continues in a file that replaces the current one.
    fn replace(&mut self, file: File);
}

impl Sink for File {
    fn rewind_to(&mut self, start: u64) -> io::Result<()> {
        // Another program may have truncated the file meanwhile, and a larger length would fill it with zero bytes.
        if self.metadata()?.len() < start { Err(ErrorKind::UnexpectedEof.into()) } else { self.set_len(start) }
    }

    fn start(&mut self) -> io::Result<u64> {
        self.seek(io::SeekFrom::End(0))
    }

    fn replace(&mut self, file: File) {
        *self = file;
    }
}

impl Sink for io::Stdout {
    fn rewind_to(&mut self, _: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn start(&mut self) -> io::Result<u64> {
        Err(ErrorKind::Unsupported.into())
    }

    fn replace(&mut self, _: File) {}
}

struct Lines<S> {
    name: String,
    sink: S,
    /// True if the output ends with an incomplete line.
    torn: bool,
    /// Replaces the file of the output; `None` for standard output.
    file: Option<OutputFile>,
    statistics: Statistics,
}

impl<S: Sink> Lines<S> {
    /// Writes snapshots and spans until the bus is closed or the reader has gone.
    fn run(mut self, mut subscription: Subscription) {
        let mut health = Health::new(self.statistics.output());
        while let Some(published) = subscription.blocking_next() {
            let began = Instant::now();
            if let Some(file) = self.file.as_ref().and_then(OutputFile::next) {
                self.sink.replace(file);
                self.torn = false;
            }
            let written = match &published {
                Published::Snapshot(snapshot) => self.write(|writer| write_lines(snapshot, writer)),
                Published::Spans(batch) => self.write(|writer| write_spans(batch, writer)),
            };
            let reason = match written {
                Ok(()) => {
                    health.works();
                    None
                }
                // The reader closed the pipe, as `head` does.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return,
                Err(error) => {
                    let reason = reason(error.kind());
                    let message = format!("cannot write OTLP/JSON to {}: {error}; {}", self.name, cure(&error));
                    health.failed(reason, &message);
                    Some(reason)
                }
            };
            self.count(&published, reason, began.elapsed());
        }
    }

    fn count(&self, published: &Published, outcome: ErrorType, duration: Duration) {
        match published {
            Published::Snapshot(snapshot) => {
                self.statistics.points(outcome, snapshot.points());
                self.statistics.exported(outcome, duration);
                // A full disk may get free space again. Other failures are permanent.
                if outcome != Some(NO_SPACE) {
                    self.statistics.settled(snapshot.time);
                }
            }
            Published::Spans(batch) => {
                self.statistics.spans(outcome, batch.spans());
                if outcome.is_none() {
                    batch.accept();
                }
            }
        }
    }

    fn write(&mut self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        // Devices, pipes and sockets have no position.
        let start = self.sink.start().ok();
        let mut buffered = BufWriter::with_capacity(16 * 1024, &mut self.sink);
        let lines = |writer: &mut BufWriter<_>| {
            if self.torn {
                writer.write_all(b"\n")?;
            }
            content(writer)?;
            writer.flush()
        };
        let written = lines(&mut buffered);
        // Dropping the buffer would attempt to write the rest again.
        drop(buffered.into_parts());
        self.torn = written.is_err() && start.is_none_or(|start| self.sink.rewind_to(start).is_err());
        written
    }
}

const NO_SPACE: &str = "no_space";

fn reason(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => NO_SPACE,
        ErrorKind::PermissionDenied => "permission_denied",
        _ => "write_error",
    }
}

fn cure(error: &io::Error) -> &'static str {
    match error.kind() {
        _ if error.raw_os_error() == Some(libc::ELOOP) => {
            "it is a symbolic link, and links are not followed; use the path of its target"
        }
        ErrorKind::IsADirectory => "use the path of a file, not of a directory",
        ErrorKind::NotFound => "create its directory first",
        ErrorKind::NotADirectory => "a component of its path is not a directory; use another path",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "choose a file that this user can write",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "free some space; later lines will be complete"
        }
        _ => "choose another file",
    }
}
