//! The worker's access to the loader.

use std::{cell::RefCell, collections::BTreeMap, io, os::fd::OwnedFd, rc::Rc};

use super::messages::{Answer, Facts, Insert, Load, OpenClock, Remove, Request, Set, Table, Variable};
use crate::channel::{Call, Channel};

/// The error of a request to the service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// The service could not execute the request.
    #[error("{0}")]
    Refused(String),
    /// The loader process ended, or does not respond.
    #[error("the loader does not respond: {0}")]
    NoLoader(String),
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

/// The maps that user space reads, by name.
pub type Maps = BTreeMap<String, OwnedFd>;

impl Client {
    /// Passes requests to a holder of the programs in this process, for benchmarks and tests.
    #[must_use]
    pub fn in_process(service: Box<dyn Answer>) -> Self {
        Self(Rc::new(RefCell::new(Backend::InProcess(service))))
    }

    /// Sends requests to the loader at the other end of a channel.
    #[must_use]
    pub fn connect(channel: Channel) -> Self {
        Self(Rc::new(RefCell::new(Backend::Loader(channel))))
    }

    /// Lets the loader process load the programs.
    ///
    /// # Errors
    /// If nothing can be measured, or the loader process ended.
    pub fn load_remotely(&self) -> Result<(Facts, Maps), ServiceError> {
        let ((names, facts), descriptors) = self.exchange(Load {})?;
        if names.len() != descriptors.len() {
            return Err(ServiceError::NoLoader("a map has no descriptor".to_owned()));
        }
        Ok((facts, names.into_iter().zip(descriptors).collect()))
    }

    /// Executes a request, and returns its reply.
    ///
    /// # Errors
    /// If the service cannot execute the request or cannot be reached.
    pub fn call<C>(&self, call: C) -> Result<C::Reply, ServiceError>
    where
        C: Call,
        Request: From<C>,
    {
        self.exchange(call).map(|(reply, _)| reply)
    }

    fn exchange<C>(&self, call: C) -> Result<(C::Reply, Vec<OwnedFd>), ServiceError>
    where
        C: Call,
        Request: From<C>,
    {
        let mut backend = self.0.borrow_mut();
        let received = match &mut *backend {
            Backend::InProcess(service) => service.answer(call.into()).decode(),
            Backend::Loader(channel) => channel.call::<C, Request>(call),
            Backend::Lost => return Err(ServiceError::NoLoader("an earlier request failed".to_owned())),
        };
        match received {
            Ok((Ok(reply), descriptors)) => Ok((reply, descriptors)),
            Ok((Err(reason), _)) => Err(ServiceError::Refused(reason)),
            Err(error) => {
                *backend = Backend::Lost;
                Err(ServiceError::NoLoader(error.to_string()))
            }
        }
    }

    /// Opens the clock of a NIC.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn open_clock(&self, number: u32) -> Result<OwnedFd, ServiceError> {
        let (_, mut descriptors) = self.exchange(OpenClock { number })?;
        descriptors.pop().ok_or_else(|| ServiceError::NoLoader("the clock has no descriptor".to_owned()))
    }

    /// Writes a variable of the programs.
    ///
    /// # Errors
    /// If the service cannot be reached, or the kernel refuses.
    pub fn set(&self, variable: Variable, value: u64) -> Result<(), ServiceError> {
        self.call(Set { variable, value })
    }

    /// Inserts an entry, or replaces it.
    ///
    /// # Errors
    /// If the service cannot be reached, or the kernel refuses.
    pub fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> Result<(), ServiceError> {
        self.call(Insert { table, key: key.to_vec(), value: value.to_vec() })
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// If the service cannot be reached, or the kernel refuses.
    pub fn remove(&self, table: Table, key: &[u8]) -> Result<(), ServiceError> {
        self.call(Remove { table, key: key.to_vec() })
    }

    /// Returns false after a failed request to the loader; further requests fail too.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !matches!(&*self.0.borrow(), Backend::Lost)
    }
}

impl From<ServiceError> for io::Error {
    fn from(error: ServiceError) -> Self {
        Self::other(error)
    }
}
