//! Requests to the loader, and its replies.

use std::{borrow::Cow, collections::BTreeMap, os::fd::OwnedFd, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    cpu_events::CpuEvent, drops::Reasons, fields::FieldFact, filter_map, groups, nics, nics::NicInventory,
    plan::Outcome, statistics::Runs, task_clock::TaskClock, text::Text,
};

/// A request to the process that holds the programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Create the maps and prepare the programs. The reply is [`Reply::Loaded`], with a descriptor of each map.
    Load,
    /// Attach the programs of these hooks, by name. The reply is [`Reply::Outcomes`].
    Serve(Vec<Cow<'static, str>>),
    /// Attach to the functions that the user named. The reply is [`Reply::Outcomes`].
    ServeFunctions,
    /// Free the kernel's BTF, which attaching needs. The reply is [`Reply::Done`].
    ReleaseTypes,
    /// Search the NICs that timestamp packets. The reply is [`Reply::Nics`].
    FindNics,
    /// Attach or detach the hook of NIC timestamps, according to the NICs that were found. The reply is
    /// [`Reply::Outcomes`].
    NoteNics(NicInventory),
    /// Open the clock of a NIC, by its number. The reply is [`Reply::Done`], with one descriptor.
    OpenClock(u32),
    /// Read the kernel's counts for each attached program. The reply is [`Reply::Runs`].
    Runs,
    /// Write a variable of the programs. The reply is [`Reply::Done`].
    Set(Variable, u64),
    /// Insert an entry. The reply is [`Reply::Done`].
    Insert(Table, Vec<u8>, Vec<u8>),
    /// Remove an entry. The reply is [`Reply::Done`].
    Remove(Table, Vec<u8>),
    /// Look up an entry. The reply is [`Reply::Value`].
    Get(Table, Vec<u8>),
    /// List the entries. The reply is [`Reply::Entries`].
    Entries(Table),
    /// Append a free group number. The reply is [`Reply::Done`].
    FreeGroup(u32),
    /// Set the periods of an event on CPUs. The reply is [`Reply::Done`].
    SetPeriods(CpuEvent, Vec<(u32, u64)>),
    /// Open the counters of CPUs again. The reply is [`Reply::Done`].
    ReopenCounters(Vec<u32>),
    /// Find the functions that samples are classified by. The reply is [`Reply::Text`].
    FindText,
    /// Replace the reader by a new process. The reply is [`Reply::Started`], with the descriptors of its two channels.
    StartReader,
}

/// The deadline of requests at the start that take seconds on slow machines: to load or attach programs, or to read all symbols.
const STARTING: Duration = Duration::from_secs(120);
/// The deadline of other requests, which block the worker.
const RUNNING: Duration = Duration::from_secs(10);

impl Request {
    /// Returns the time within which the reply must arrive.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        match self {
            Self::Load | Self::Serve(_) | Self::ServeFunctions | Self::NoteNics(_) | Self::FindText => STARTING,
            _ => RUNNING,
        }
    }
}

/// A reply to a [`Request`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The request succeeded.
    Done,
    /// The names of the maps in the order of the descriptors, and facts about the kernel.
    Loaded(Vec<String>, Box<Facts>),
    /// The outcomes of all hooks and functions so far.
    Outcomes(Vec<Outcome>),
    /// A process of this number was started.
    Started(u32),
    /// The NICs that timestamp packets.
    Nics(NicInventory),
    /// The address ranges of functions.
    Text(Text),
    /// Counts by program.
    Runs(BTreeMap<String, Runs>),
    /// The value of an entry; `None` if there is no such entry.
    Value(Option<Vec<u8>>),
    /// Keys and values.
    Entries(Vec<(Vec<u8>, Vec<u8>)>),
    /// The request failed.
    Failed(String),
}

/// Facts about the kernel that loading determines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The fields that programs read.
    pub fields: Vec<FieldFact>,
    /// True if tracing programs may use socket storage.
    pub socket_storage: bool,
    /// True if tracing programs may cast a socket to a TCP socket.
    pub tcp_sockets: bool,
    /// The kernel's reasons for dropping packets.
    pub drop_reasons: Reasons,
    /// The functions that the user named, indexed by layer.
    pub functions: Vec<String>,
    /// The NICs that timestamp packets.
    pub nics: NicInventory,
    /// The times that the kernel excludes from the run time of tasks.
    pub task_clock: TaskClock,
    /// The bits of the processor's counters that programs read.
    pub counters: u32,
}

/// A variable of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variable {
    /// The offset between the monotonic clock and the wall clock.
    ClockOffset,
    /// The mask that selects packets.
    Sample,
    /// The epoch of cached owners.
    Epoch,
    /// The threshold of slow packets, in nanoseconds.
    SlowThreshold,
}

impl Variable {
    /// Returns the section of the object that holds only this variable.
    pub const fn section(self) -> &'static str {
        match self {
            Self::ClockOffset => ".data.clock",
            Self::Sample => ".data.sample",
            Self::Epoch => ".data.owner",
            Self::SlowThreshold => ".data.slow",
        }
    }
}

/// A hash map that user space writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Table {
    /// The packets that are measured.
    FilterMap,
    /// The numbers of groups.
    Groups,
    /// The names of interfaces.
    Interfaces,
    /// The indices of NICs.
    NicIndices,
}

impl Table {
    /// Returns the name of the map in the object.
    #[must_use]
    pub const fn map(self) -> &'static str {
        match self {
            Self::FilterMap => filter_map::CHOICES.name,
            Self::Groups => groups::GROUPS.name,
            Self::Interfaces => groups::INTERFACES.name,
            Self::NicIndices => nics::INDICES,
        }
    }
}

/// The privileged half of the kernel boundary: it holds the programs.
pub trait Answer {
    /// Executes a request. An error becomes the reply [`Reply::Failed`].
    fn answer(&mut self, request: Request) -> (Reply, Vec<OwnedFd>);
}
