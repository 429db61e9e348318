//! The parts of the sidecar. Each part is a process with the privileges that it needs.
//!
//! The first process reads the configuration and opens the output files as the user that started it. It starts the
//! loader, which starts the reader. It then becomes the worker: it drops all privileges before it communicates with any
//! other process.

mod confine;
mod loader;
mod process;

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use serde::{Serialize, de::DeserializeOwned};

pub use self::confine::{ConfineError, Confinement, FileAccess, Part, Reach, USER};
pub use self::process::Process;
use crate::{
    causes::chain,
    channel::Channel,
    kernel::{Kernel, KernelError, client::Client, host::Host},
    reader::{self, Places, Reader},
    requirements::Requirements,
    workloads::Files,
};

/// The maximum time for which the worker waits, before it exits, until the loader has detached the programs.
const DETACHING: Duration = Duration::from_secs(2);

/// The maximum number of killed readers in uninterruptible sleep before no other reader starts.
const READERS: usize = 4;
/// The maximum number of readers that start in [`PERIOD`].
const STARTS: usize = 10;
/// The period of the limit of starts.
const PERIOD: Duration = Duration::from_secs(60);

/// The process of the loader, and the connection to it.
pub struct Loader {
    process: Process,
    /// `None` once the programs are loaded.
    client: Option<Client>,
}

/// Access to the kernel and to other processes, through the privileged parts.
pub struct Access {
    /// The loaded programs and their maps.
    pub kernel: Kernel,
    /// The files about cgroups and processes; `None` if no cgroups are mounted.
    pub files: Option<Files>,
    /// The reader.
    pub reader: Reader,
    /// The loader. It detaches every program once all fields of this value are dropped.
    pub loader: Loader,
}

impl Access {
    /// Starts the loader and the reader, and loads the programs. This process must be single-threaded.
    ///
    /// # Errors
    /// If no signal can be measured, or a part cannot be started.
    pub fn gain(host: Host, requirements: &Requirements) -> Result<Self, AccessError> {
        let mut loader = Loader::start(&host, requirements).map_err(AccessError::Loader)?;
        let client = loader.client.take().ok_or(AccessError::Reader(io::ErrorKind::NotConnected.into()))?;
        let reader = Reader::start(client.clone()).map_err(AccessError::Reader)?;
        let files = host.hierarchy.clone().map(|hierarchy| Files::through(reader.clone(), hierarchy));
        let requirements = requirements.load_options(host.cpus);
        let kernel = Kernel::load_remotely(host.clone(), &requirements, client)?;
        Ok(Self { kernel, files, reader, loader })
    }
}

/// The reason why the parts cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The process of the loader cannot be created.
    #[error("cannot start the loader: {0}")]
    Loader(#[source] io::Error),
    /// The process of the reader cannot be created.
    #[error("cannot start the reader: {0}")]
    Reader(#[source] io::Error),
    /// No signal can be measured.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The worker cannot drop its privileges.
    #[error("{0}")]
    Worker(String),
}

/// Runs a function with the worker's privileges in a child process, and returns its result. `reach` limits the child, and `prepare`
/// runs before the child drops its privileges. This process must be single-threaded.
///
/// # Errors
/// The reason why the sidecar would not run.
pub fn in_worker<P, T: Serialize + DeserializeOwned>(
    reach: &Reach,
    prepare: impl FnOnce() -> Result<P, String>,
    work: impl FnOnce(P) -> T,
) -> Result<T, AccessError> {
    let text = |error: io::Error| AccessError::Worker(format!("cannot start the worker: {error}"));
    let (mut ours, theirs) = Channel::pair().map_err(text)?;
    let process = Process::start(c"uc-worker", vec![theirs.into()], |kept| {
        let [channel] = <[_; 1]>::try_from(kept).map_err(|_| "no channel".to_owned())?;
        let confined = prepare().and_then(|prepared| {
            Part::Worker.confine(reach).map_err(|error| chain(&error))?;
            Ok(prepared)
        });
        let outcome: Result<T, String> = confined.map(work);
        Channel::from(channel).send(&outcome, &[]).map_err(|error| chain(&error))
    });
    let process = process.map_err(text)?;
    let (outcome, _) = ours.receive::<Result<T, String>>().map_err(|error| text(io::Error::other(error)))?;
    // The child exits after it has sent the outcome.
    let _ = process.wait(DETACHING);
    outcome.map_err(AccessError::Worker)
}

/// The loader ended while the sidecar was running.
#[derive(Debug, thiserror::Error)]
#[error("the loader (process {0}) ended: no program is attached any more; its last log line gives the reason")]
pub struct LoaderEnded(u32);

impl Loader {
    /// Starts the loader. This process must be single-threaded.
    ///
    /// # Errors
    /// If the kernel cannot create the process.
    pub fn start(host: &Host, requirements: &Requirements) -> io::Result<Self> {
        let (ours, theirs) = Channel::pair()?;
        let process = Process::start(c"uc-loader", vec![theirs.into()], |kept| {
            let [channel] = <[_; 1]>::try_from(kept).map_err(|_| "no channel".to_owned())?;
            let mut readers = Readers::default();
            let places = requirements.places(host);
            let start_reader = || readers.start(&places).map_err(|error| error.to_string());
            loader::serve(
                channel.into(),
                &reach_of(&places),
                host.clone(),
                &requirements.load_options(host.cpus),
                start_reader,
            )
        })?;
        Ok(Self { process, client: Some(Client::connect(ours)) })
    }

    /// Returns the process id of the loader.
    #[must_use]
    pub const fn process(&self) -> u32 {
        self.process.number()
    }

    /// Waits until the loader has ended.
    pub async fn ended(&self) -> LoaderEnded {
        if let Err(error) = self.process.ended().await {
            tracing::warn!("cannot watch the loader: {error}");
            std::future::pending::<()>().await;
        }
        LoaderEnded(self.process.number())
    }
}

/// The readers that the loader started.
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
    fn start(&mut self, places: &Places) -> io::Result<(u32, Vec<OwnedFd>)> {
        if !self.starts.admit(Instant::now()) {
            return Err(io::Error::other(format!("{STARTS} readers have started within {PERIOD:?}")));
        }
        self.processes.iter().for_each(Process::kill);
        self.processes.retain(|reader| !reader.wait(Duration::ZERO));
        if self.processes.len() > READERS {
            return Err(io::Error::other(format!("{READERS} killed readers still wait in system calls")));
        }
        let (process, channels) = start_reader(places)?;
        let number = process.number();
        self.processes.push(process);
        Ok((number, channels))
    }
}

/// Returns what the privileged parts may access.
fn reach_of(places: &Places) -> Reach {
    Reach { writes: !places.outputs.is_empty(), ..Reach::default() }
}

/// Starts a reader. Returns its process and the worker's ends of its channels.
fn start_reader(places: &Places) -> io::Result<(Process, Vec<OwnedFd>)> {
    let ((files, their_files), (foreign, their_foreign)) = (Channel::pair()?, Channel::pair()?);
    let process = Process::start(c"uc-reader", vec![their_files.into(), their_foreign.into()], |kept| {
        let [files, foreign] = <[_; 2]>::try_from(kept).map_err(|_| "no channels".to_owned())?;
        Part::Reader.confine(&reach_of(places)).map_err(|error| chain(&error))?;
        reader::serve(files.into(), foreign.into(), places)
    })?;
    Ok((process, vec![files.into(), foreign.into()]))
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.client = None;
        if !self.process.wait(DETACHING) {
            tracing::warn!("the loader still detaches programs after {DETACHING:?}; the worker exits without it");
        }
    }
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
