//! The worker's access to the loader.

use std::{cell::RefCell, collections::BTreeMap, io, os::fd::OwnedFd, rc::Rc};

use super::{
    cpu_events::CpuEvent,
    messages::{Answer, Facts, Reply, Request, Table, Variable},
    nics::NicInventory,
    plan::Outcome,
    statistics::Runs,
    text::Text,
};
use crate::channel::{Channel, ChannelError};

/// The error of a request to the service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// The service could not execute the request.
    #[error("{0}")]
    Refused(String),
    /// The loader process ended, or does not respond.
    #[error("the loader does not respond: {0}")]
    NoLoader(String),
    /// The loader sent a reply of a different kind.
    #[error("the loader sent an unexpected reply")]
    Unexpected,
}

/// A connection to the service. Clones share it.
#[derive(Clone)]
pub struct Client(Rc<RefCell<Backend>>);

enum Backend {
    InProcess(Box<dyn Answer>),
    Loader(Channel),
    /// A request failed. The channel is closed, because a late reply would answer the next request.
    Lost,
}

impl From<ChannelError> for ServiceError {
    fn from(error: ChannelError) -> Self {
        Self::NoLoader(error.to_string())
    }
}

/// The entries of a map, as keys and values.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The maps that user space reads, by name.
pub type Maps = BTreeMap<String, OwnedFd>;

impl Client {
    /// Passes requests to a holder of the programs in this process, for benchmarks and tests.
    #[must_use]
    pub fn in_process(service: Box<dyn Answer>) -> Self {
        Self(Rc::new(RefCell::new(Backend::InProcess(service))))
    }

    /// Sends requests to the loader at the other end of a channel.
    ///
    /// # Errors
    /// If the channel does not support a deadline.
    pub fn connect(channel: Channel) -> io::Result<Self> {
        channel.set_deadline(Request::Load.deadline())?;
        Ok(Self(Rc::new(RefCell::new(Backend::Loader(channel)))))
    }

    /// Lets the loader process load the programs.
    ///
    /// # Errors
    /// If nothing can be measured, or the loader process ended.
    pub fn load_remotely(&self) -> Result<(Facts, Maps), ServiceError> {
        let (Reply::Loaded(names, facts), descriptors) = self.exchange(Request::Load)? else {
            return Err(ServiceError::Unexpected);
        };
        if names.len() != descriptors.len() {
            return Err(ServiceError::Unexpected);
        }
        Ok((*facts, names.into_iter().zip(descriptors).collect()))
    }

    fn exchange(&self, request: Request) -> Result<(Reply, Vec<OwnedFd>), ServiceError> {
        let mut backend = self.0.borrow_mut();
        let (reply, descriptors) = match &mut *backend {
            Backend::InProcess(service) => service.answer(request),
            Backend::Loader(channel) => match call(channel, &request) {
                Ok(reply) => reply,
                Err(error) => {
                    *backend = Backend::Lost;
                    return Err(error.into());
                }
            },
            Backend::Lost => return Err(ServiceError::NoLoader("an earlier request failed".to_owned())),
        };
        match reply {
            Reply::Failed(reason) => Err(ServiceError::Refused(reason)),
            reply => Ok((reply, descriptors)),
        }
    }

    /// Returns false after a failed request to the loader; further requests fail too.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !matches!(&*self.0.borrow(), Backend::Lost)
    }

    fn call(&self, request: Request) -> Result<Reply, ServiceError> {
        self.exchange(request).map(|(reply, _)| reply)
    }

    fn run(&self, request: Request) -> Result<(), ServiceError> {
        match self.call(request)? {
            Reply::Done => Ok(()),
            _ => Err(ServiceError::Unexpected),
        }
    }

    fn outcomes(&self, request: Request) -> Result<Vec<Outcome>, ServiceError> {
        match self.call(request)? {
            Reply::Outcomes(outcomes) => Ok(outcomes),
            _ => Err(ServiceError::Unexpected),
        }
    }

    /// Attaches hooks by name, and returns the outcomes of all hooks.
    ///
    /// # Errors
    /// If the service cannot be reached. A refused program is an outcome, not an error.
    pub fn serve(&self, hooks: impl Iterator<Item = &'static str>) -> Result<Vec<Outcome>, ServiceError> {
        self.outcomes(Request::Serve(hooks.map(Into::into).collect()))
    }

    /// Attaches to the functions that the user named, and returns the outcomes of all hooks.
    ///
    /// # Errors
    /// If the service cannot be reached.
    pub fn serve_functions(&self) -> Result<Vec<Outcome>, ServiceError> {
        self.outcomes(Request::ServeFunctions)
    }

    /// Frees the kernel's types.
    ///
    /// # Errors
    /// If the service cannot be reached.
    pub fn release_types(&self) -> Result<(), ServiceError> {
        self.run(Request::ReleaseTypes)
    }

    /// Searches the NICs that timestamp packets.
    ///
    /// # Errors
    /// If the service cannot be reached.
    pub fn find_nics(&self) -> Result<NicInventory, ServiceError> {
        match self.call(Request::FindNics)? {
            Reply::Nics(found) => Ok(found),
            _ => Err(ServiceError::Unexpected),
        }
    }

    /// Attaches or detaches the hook of NIC timestamps, and returns the outcomes of all hooks.
    ///
    /// # Errors
    /// If the kernel's BTF cannot be read.
    pub fn note_nics(&self, found: NicInventory) -> Result<Vec<Outcome>, ServiceError> {
        self.outcomes(Request::NoteNics(found))
    }

    /// Opens the clock of a NIC.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn open_clock(&self, number: u32) -> Result<OwnedFd, ServiceError> {
        let (_, mut descriptors) = self.exchange(Request::OpenClock(number))?;
        descriptors.pop().ok_or(ServiceError::Unexpected)
    }

    /// Returns the kernel's counts for each attached program.
    ///
    /// # Errors
    /// If the service cannot be reached.
    pub fn runs(&self) -> Result<BTreeMap<String, Runs>, ServiceError> {
        match self.call(Request::Runs)? {
            Reply::Runs(runs) => Ok(runs),
            _ => Err(ServiceError::Unexpected),
        }
    }

    /// Writes a variable of the programs.
    ///
    /// # Errors
    /// If the service cannot be reached, or the kernel refuses.
    pub fn set(&self, variable: Variable, value: u64) -> Result<(), ServiceError> {
        self.run(Request::Set(variable, value))
    }

    /// Inserts an entry, or replaces it.
    ///
    /// # Errors
    /// If the service cannot be reached, or the kernel refuses.
    pub fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> Result<(), ServiceError> {
        self.run(Request::Insert(table, key.to_vec(), value.to_vec()))
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// If the service cannot be reached, or the kernel refuses.
    pub fn remove(&self, table: Table, key: &[u8]) -> Result<(), ServiceError> {
        self.run(Request::Remove(table, key.to_vec()))
    }

    /// Looks up an entry.
    ///
    /// # Errors
    /// If the service cannot be reached, or the kernel refuses.
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ServiceError> {
        match self.call(Request::Get(table, key.to_vec()))? {
            Reply::Value(value) => Ok(value),
            _ => Err(ServiceError::Unexpected),
        }
    }

    /// Returns all entries.
    ///
    /// # Errors
    /// If the service cannot be reached, or the kernel refuses.
    pub fn entries(&self, table: Table) -> Result<Entries, ServiceError> {
        match self.call(Request::Entries(table))? {
            Reply::Entries(entries) => Ok(entries),
            _ => Err(ServiceError::Unexpected),
        }
    }

    /// Sets the periods of an event on CPUs. Skips CPUs that are offline.
    ///
    /// # Errors
    /// If the service cannot be reached, or the kernel refuses.
    pub fn set_periods(&self, event: CpuEvent, periods: Vec<(u32, u64)>) -> Result<(), ServiceError> {
        self.run(Request::SetPeriods(event, periods))
    }

    /// Opens the counters of CPUs again. Skips CPUs that are offline.
    ///
    /// # Errors
    /// If the service cannot be reached, or the kernel refuses.
    pub fn reopen_counters(&self, cpus: Vec<u32>) -> Result<(), ServiceError> {
        self.run(Request::ReopenCounters(cpus))
    }

    /// Finds the functions that samples are classified by.
    ///
    /// # Errors
    /// If the service cannot be reached, or the kernel hides addresses.
    pub fn find_text(&self) -> Result<Text, ServiceError> {
        match self.call(Request::FindText)? {
            Reply::Text(text) => Ok(text),
            _ => Err(ServiceError::Unexpected),
        }
    }

    /// Appends a free group number.
    ///
    /// # Errors
    /// If the service cannot be reached, or the kernel refuses.
    pub fn free_group(&self, number: u32) -> Result<(), ServiceError> {
        self.run(Request::FreeGroup(number))
    }

    /// Replaces the reader by a new process, and returns its pid and the descriptors of its channels.
    ///
    /// # Errors
    /// If there is no loader, or it cannot start a process.
    pub fn start_reader(&self) -> Result<(u32, Vec<OwnedFd>), ServiceError> {
        match self.exchange(Request::StartReader)? {
            (Reply::Started(process), descriptors) => Ok((process, descriptors)),
            _ => Err(ServiceError::Unexpected),
        }
    }
}

/// Sends a request to the loader and receives the reply.
fn call(channel: &mut Channel, request: &Request) -> Result<(Reply, Vec<OwnedFd>), ChannelError> {
    channel.set_deadline(request.deadline())?;
    channel.send(request, &[])?;
    channel.receive()
}

impl From<ServiceError> for io::Error {
    fn from(error: ServiceError) -> Self {
        Self::other(error)
    }
}
