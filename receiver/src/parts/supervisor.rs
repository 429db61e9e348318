//! The supervisor: starts the loader, the writer and the readers. Its only inputs are the settings of the first process, and requests of
//! the worker without content.

use std::{
    collections::VecDeque,
    io, mem,
    os::fd::OwnedFd,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{
    Part, Reach, limit_supervisor_to_readers,
    orders::{LoaderOrder, Log, Orders},
    process::Process,
    program::Program,
};
use crate::{
    causes::chain,
    channel::{Call as _, Channel, ChannelError, calls},
    reader::Places,
};

/// The time limit of a start. It blocks the worker.
const STARTING: Duration = Duration::from_secs(10);
/// The maximum number of killed readers in uninterruptible sleep before no other reader starts.
const READERS: usize = 4;
/// The maximum number of readers that start in [`PERIOD`].
const STARTS: usize = 10;
/// The period of the limit of starts.
const PERIOD: Duration = Duration::from_secs(60);

calls! {
    /// A request to the supervisor.
    #[expect(clippy::enum_variant_names, reason = "the supervisor starts parts and does nothing else")]
    pub enum Request {
        /// Start the loader, once. Returns its process id, with the descriptors of its channel and of the process.
        StartLoader {} -> u32, within STARTING;
        /// Start the writer, once, and before the loader. Returns its process id, with the descriptor of its channel.
        StartWriter {} -> u32, within STARTING;
        /// Replace the reader by a new process. Returns its process id, with the descriptors of its two channels.
        StartReader {} -> u32, within STARTING;
    }
}

/// Serves the worker until it closes the channel.
///
/// # Errors
/// If a privilege cannot be dropped, or the worker sends a malformed request.
pub fn serve(mut channel: Channel) -> Result<(), String> {
    // From the first process, which has received nothing from outside yet.
    let (orders, _) = channel.receive::<Orders>().map_err(|error| chain(&error))?;
    orders.log.start();
    let mut supervisor = Supervisor::new(orders)?;
    Part::Supervisor.confine(&supervisor.reach).map_err(|error| chain(&error))?;
    channel.serve();
    loop {
        let request = match channel.receive() {
            Ok((request, _)) => request,
            Err(ChannelError::Closed) => return Ok(()),
            Err(error) => return Err(chain(&error)),
        };
        let reply = match request {
            Request::StartLoader(_) => StartLoader::reply_with(supervisor.start_loader()?.map_err(text)),
            Request::StartWriter(_) => StartWriter::reply_with(supervisor.start_writer().map_err(text)),
            Request::StartReader(_) => StartReader::reply_with(supervisor.start_reader().map_err(text)),
        };
        channel.reply(&reply).map_err(|error| chain(&error))?;
    }
}

fn text(error: ChannelError) -> String {
    error.to_string()
}

/// A process id, and descriptors for the worker.
type Started = (u32, Vec<OwnedFd>);

/// The settings of the parts that have not started, and the running parts.
struct Supervisor {
    program: Program,
    log: Log,
    reach: Reach,
    loader: Option<LoaderOrder>,
    outputs: Option<Vec<PathBuf>>,
    reader: Places,
    readers: Readers,
    /// The loader and the writer. The kernel kills a process when its value is dropped.
    running: Vec<Process>,
}

impl Supervisor {
    fn new(Orders { log, loader, mut reader }: Orders) -> Result<Self, String> {
        let program = Program::own().map_err(|error| format!("cannot open the program of this process: {error}"))?;
        // A reader opens no output.
        let outputs = mem::take(&mut reader.outputs);
        let reach = Reach { outputs: outputs.clone(), ..Reach::default() };
        let (loader, outputs, readers) = (Some(loader), Some(outputs), Readers::default());
        Ok(Self { program, log, reach, loader, outputs, reader, readers, running: Vec::new() })
    }

    /// Starts the loader, and drops what only the loader and the writer need.
    ///
    /// # Errors
    /// If a privilege cannot be dropped. The supervisor must then end.
    fn start_loader(&mut self) -> Result<Result<Started, ChannelError>, String> {
        let Some(order) = self.loader.take() else {
            return Ok(Err(refused("the loader was started already".to_owned())));
        };
        let started =
            start::<1>(&self.program, Part::Loader, &(&self.log, order)).and_then(|(process, mut channels)| {
                channels.push(process.handle()?);
                Ok(self.keep(process, channels))
            });
        limit_supervisor_to_readers(&self.reach).map_err(|error| chain(&error))?;
        Ok(started)
    }

    fn start_writer(&mut self) -> Result<Started, ChannelError> {
        let (Some(_), Some(outputs)) = (&self.loader, self.outputs.take()) else {
            return Err(refused("the writer or the loader was started already".to_owned()));
        };
        let (process, channels) = start::<1>(&self.program, Part::Writer, &(&self.log, outputs))?;
        Ok(self.keep(process, channels))
    }

    fn start_reader(&mut self) -> Result<Started, ChannelError> {
        self.readers.start(&self.program, &self.log, &self.reader)
    }

    fn keep(&mut self, process: Process, channels: Vec<OwnedFd>) -> Started {
        let number = process.number();
        self.running.push(process);
        (number, channels)
    }
}

/// Starts a part with `N` channels, and sends its settings through the first. Returns the process and the other ends.
fn start<const N: usize>(
    program: &Program,
    part: Part,
    settings: &impl Serialize,
) -> Result<(Process, Vec<OwnedFd>), ChannelError> {
    let pairs = (0..N).map(|_| Channel::pair()).collect::<io::Result<Vec<_>>>()?;
    let (mut ours, theirs): (Vec<Channel>, Vec<Channel>) = pairs.into_iter().unzip();
    let theirs = theirs.into_iter().map(OwnedFd::from).collect();
    let process = program.start(part.process_name(), theirs, || part.hand_over().map_err(|error| chain(&error)))?;
    if let Some(first) = ours.first_mut() {
        first.set_limit(STARTING / 2);
        first.send(settings, &[])?;
    }
    Ok((process, ours.into_iter().map(OwnedFd::from).collect()))
}

/// The running readers.
#[derive(Default)]
struct Readers {
    processes: Vec<Process>,
    starts: Starts,
}

/// The times of the last starts of readers, at most [`STARTS`].
#[derive(Default)]
struct Starts(VecDeque<Instant>);

impl Starts {
    /// Records a start; returns false if it would exceed [`STARTS`] in [`PERIOD`].
    fn admit(&mut self, now: Instant) -> bool {
        self.0.retain(|start| now.duration_since(*start) < PERIOD);
        let admits = self.0.len() < STARTS;
        if admits {
            self.0.push_back(now);
        }
        admits
    }
}

impl Readers {
    /// Starts a reader that replaces the last one. Returns its process id and the worker's ends of its channels.
    ///
    /// # Errors
    /// If the kernel refuses, [`READERS`] killed readers have not ended, or the worker requested [`STARTS`] readers in [`PERIOD`].
    fn start(&mut self, program: &Program, log: &Log, places: &Places) -> Result<Started, ChannelError> {
        if !self.starts.admit(Instant::now()) {
            return Err(refused(format!("{STARTS} readers have started within {PERIOD:?}")));
        }
        self.processes.iter().for_each(Process::kill);
        self.processes.retain(|reader| !reader.wait(Duration::ZERO));
        if self.processes.len() > READERS {
            return Err(refused(format!("{READERS} killed readers still wait in system calls")));
        }
        let (process, channels) = start::<2>(program, Part::Reader, &(log, places))?;
        let number = process.number();
        self.processes.push(process);
        Ok((number, channels))
    }
}

fn refused(reason: String) -> ChannelError {
    ChannelError::Io(io::Error::other(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_starts_ten_readers_a_minute_at_most() {
        let (mut starts, first) = (Starts::default(), Instant::now());
        let admitted = (0..100).filter(|second| starts.admit(first + Duration::from_millis(second * 100))).count();
        assert_eq!(admitted, STARTS);
        let later = first + PERIOD;
        assert!(starts.admit(later), "the first start has expired");
        assert!(!starts.admit(later), "the others have not");
    }
}
