//! The parts of the sidecar. Each part is a process with the privileges that it needs.
//!
//! The first process reads the configuration and opens the output files as the user that started it. It starts the
//! supervisor, which starts the loader and the reader. Each of them executes the program again, at other addresses and without
//! the memory of the first process. The first process then becomes the worker: it drops all privileges before it communicates
//! with any other process.

mod confine;
mod entry;
mod loader;
mod orders;
mod process;
mod program;
mod supervisor;

use std::{cell::RefCell, io, os::fd::OwnedFd, rc::Rc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

pub use self::{
    confine::{ConfineError, Confinement, FileAccess, Part, Reach, USER, limit_supervisor_to_readers},
    entry::run,
    process::Process,
    program::Program,
};
use self::{
    orders::{LoaderOrder, Log, Orders},
    process::Relative,
    supervisor::{Request, StartLoader, StartReader, StartWriter},
};
use crate::{
    causes::chain,
    channel::{Call, Channel},
    environment,
    kernel::{Kernel, KernelError, client::Client, host::Host},
    reader::{Foreign, Places, Reader},
    requirements::Requirements,
    workloads::Files,
};

/// The maximum time from the end of the loader's channel to the end of its process.
const ENDING: Duration = Duration::from_secs(1);
/// The maximum time for which the worker waits, before it exits, until the loader has detached the programs.
const DETACHING: Duration = Duration::from_secs(2);

/// The processes of the supervisor and the loader.
pub struct Processes {
    loader: Relative,
    writer: Option<u32>,
    process: Process,
    /// The supervisor ends without it, and the loader then has no time to detach the programs.
    _supervisor: Rc<Supervisor>,
}

/// Access to the kernel and to other processes, through the privileged parts.
pub struct Access {
    /// The loaded programs and their maps.
    pub kernel: Kernel,
    /// The files about cgroups and processes; `None` if no cgroups are mounted.
    pub files: Option<Files>,
    /// The reader.
    pub reader: Reader,
    /// The writer; `None` without files of outputs.
    pub writer: Option<Foreign>,
    /// The processes. The loader detaches every program once all fields of this value are dropped.
    pub processes: Processes,
}

impl Access {
    /// Starts the supervisor, the loader and the reader, which execute `program`, and loads the eBPF programs. This process must be
    /// single-threaded.
    ///
    /// # Errors
    /// If no signal can be measured, or a part cannot be started.
    pub fn gain(program: &Program, host: Host, requirements: &Requirements) -> Result<Self, AccessError> {
        let options = requirements.load_options(host.cpus);
        let orders = Orders {
            log: Log::of(&environment::process),
            loader: LoaderOrder::new(host.clone(), requirements.load_options(host.cpus)),
            reader: requirements.places(&host),
        };
        let (supervisor, process) = Supervisor::start(program, &orders).map_err(AccessError::Supervisor)?;
        let supervisor = Rc::new(supervisor);
        // Before the loader: the supervisor then drops what it needs for the start of both.
        let (writer, process_of_writer) = supervisor.start_writer(&orders.reader).map_err(AccessError::Writer)?.unzip();
        let (number, descriptors) = supervisor.call(StartLoader {}).map_err(AccessError::Loader)?;
        let [channel, handle] = <[OwnedFd; 2]>::try_from(descriptors)
            .map_err(|_| AccessError::Loader(io::Error::other("the loader has no channel")))?;
        let loader = Relative::new(number, handle);
        let _supervisor = Rc::clone(&supervisor);
        let processes = Processes { loader, writer: process_of_writer, process, _supervisor };
        let start_reader = move || supervisor.call(StartReader {});
        let reader = Reader::start(Box::new(start_reader)).map_err(AccessError::Reader)?;
        let files = host.hierarchy.clone().map(|hierarchy| Files::through(reader.clone(), hierarchy));
        let kernel = Kernel::load_remotely(host, &options, Client::connect(channel.into()))?;
        Ok(Self { kernel, files, reader, writer, processes })
    }
}

/// The reason why the parts cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The process of the supervisor cannot be created.
    #[error("cannot start the supervisor: {0}")]
    Supervisor(#[source] io::Error),
    /// The process of the loader cannot be created.
    #[error("cannot start the loader: {0}")]
    Loader(#[source] io::Error),
    /// The process of the reader cannot be created.
    #[error("cannot start the reader: {0}")]
    Reader(#[source] io::Error),
    /// The process of the writer cannot be created.
    #[error("cannot start the writer: {0}")]
    Writer(#[source] io::Error),
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
    let process = Process::start(Part::Worker.process_name(), vec![theirs.into()], |kept| {
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

impl Processes {
    /// Returns the process ids of the supervisor, the loader and the writer.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        [self.process.number(), self.loader.number()].into_iter().chain(self.writer)
    }

    /// Returns the end of the loader after a request to it failed; `None` if it still runs.
    #[must_use]
    pub fn loader_ended(&self) -> Option<LoaderEnded> {
        self.loader.wait(ENDING).then(|| LoaderEnded(self.loader.number()))
    }

    /// Waits until the loader has ended, which also ends with the supervisor.
    pub async fn ended(&self) -> LoaderEnded {
        if let Err(error) = self.loader.ended().await {
            tracing::warn!("cannot watch the loader: {error}");
            std::future::pending::<()>().await;
        }
        LoaderEnded(self.loader.number())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        if !self.loader.wait(DETACHING) {
            tracing::warn!("the loader still detaches programs after {DETACHING:?}; the worker exits without it");
        }
    }
}

/// A connection to the supervisor.
struct Supervisor(RefCell<Channel>);

impl Supervisor {
    /// Starts the supervisor. This process must be single-threaded.
    fn start(program: &Program, orders: &Orders) -> io::Result<(Self, Process)> {
        let (mut ours, theirs) = Channel::pair()?;
        let part = Part::Supervisor;
        let hand_over = || part.hand_over().map_err(|error| chain(&error));
        let process = program.start(part.process_name(), vec![theirs.into()], hand_over)?;
        ours.set_limit(StartLoader::LIMIT);
        ours.send(orders, &[]).map_err(io::Error::other)?;
        Ok((Self(RefCell::new(ours)), process))
    }

    /// Lets the supervisor start the writer if outputs have files. Returns its client and its process id.
    fn start_writer(&self, places: &Places) -> io::Result<Option<(Foreign, u32)>> {
        if places.outputs.is_empty() {
            return Ok(None);
        }
        let (number, mut descriptors) = self.call(StartWriter {})?;
        let channel = descriptors.pop().ok_or_else(|| io::Error::other("the writer has no channel"))?;
        Ok(Some((Foreign::connect(channel.into())?, number)))
    }

    /// Lets the supervisor start a part. Returns its process id and descriptors.
    fn call<C>(&self, call: C) -> io::Result<(C::Reply, Vec<OwnedFd>)>
    where
        C: Call,
        Request: From<C>,
    {
        let received = self.0.borrow_mut().call::<C, Request>(call);
        let (reply, descriptors) =
            received.map_err(|error| io::Error::other(format!("the supervisor does not respond: {error}")))?;
        Ok((reply.map_err(io::Error::other)?, descriptors))
    }
}
