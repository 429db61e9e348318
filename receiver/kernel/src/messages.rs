//! Requests to the loader, and its replies.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use undercurrent_channel::{Reply, calls};

use crate::{
    cpu_events::CpuEvent, drops::Reasons, fields::FieldFact, nic_inventory::NicInventory, plan::Outcome,
    statistics::Runs, task_clock::TaskClock, text::Text,
};

/// The time limit of requests at the start that take seconds on slow machines: to load or attach programs, or to read all symbols.
const STARTING: Duration = Duration::from_secs(120);
/// The time limit of other requests, which block the worker.
const RUNNING: Duration = Duration::from_secs(10);

/// The names of the maps that user space reads, in the order of their descriptors, and facts about the kernel.
pub type Loaded = (Vec<String>, Facts);

/// The entries of a map, as keys and values.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

calls! {
    /// A request to the process that holds the programs.
    pub enum Request {
        /// Create the maps and prepare the programs. The reply has the descriptor of each map.
        Load {} -> Loaded, within STARTING;
        /// Attach the programs of hooks. Returns the outcomes of all hooks and functions so far.
        Serve {
            /// The names of the hooks.
            hooks: Vec<Cow<'static, str>>,
        } -> Vec<Outcome>, within STARTING;
        /// Attach to the functions that the user named. Returns the outcomes of all hooks and functions so far.
        ServeFunctions {} -> Vec<Outcome>, within STARTING;
        /// Free the kernel's BTF, which attaching needs.
        ReleaseTypes {} -> (), within RUNNING;
        /// Search the NICs that timestamp packets.
        FindNics {} -> NicInventory, within RUNNING;
        /// Attach or detach the hook of NIC timestamps. Returns the outcomes of all hooks and functions so far.
        NoteNics {
            /// The NICs that timestamp packets.
            found: NicInventory,
        } -> Vec<Outcome>, within STARTING;
        /// Open the clock of a NIC. The reply has its descriptor.
        OpenClock {
            /// The number of the clock.
            number: u32,
        } -> (), within RUNNING;
        /// Read the kernel's counts for each attached program.
        ReadRuns {} -> BTreeMap<String, Runs>, within RUNNING;
        /// Write a variable of the programs.
        Set {
            /// The variable.
            variable: Variable,
            /// Its value.
            value: u64,
        } -> (), within RUNNING;
        /// Insert an entry, or replace it.
        Insert {
            /// The map.
            table: Table,
            /// The bytes of the key.
            key: Vec<u8>,
            /// The bytes of the value.
            value: Vec<u8>,
        } -> (), within RUNNING;
        /// Remove an entry.
        Remove {
            /// The map.
            table: Table,
            /// The bytes of the key.
            key: Vec<u8>,
        } -> (), within RUNNING;
        /// Look up an entry. Returns `None` if there is no such entry.
        Get {
            /// The map.
            table: Table,
            /// The bytes of the key.
            key: Vec<u8>,
        } -> Option<Vec<u8>>, within RUNNING;
        /// List the entries.
        List {
            /// The map.
            table: Table,
        } -> Entries, within RUNNING;
        /// Append a free group number.
        FreeGroup {
            /// The number.
            number: u32,
        } -> (), within RUNNING;
        /// Set the periods of an event on CPUs. CPUs that are offline are skipped.
        SetPeriods {
            /// The event.
            event: CpuEvent,
            /// The CPUs and their periods.
            periods: Vec<(u32, u64)>,
        } -> (), within RUNNING;
        /// Open the counters of CPUs again. CPUs that are offline are skipped.
        ReopenCounters {
            /// The CPUs.
            cpus: Vec<u32>,
        } -> (), within RUNNING;
        /// Find the functions that samples are classified by.
        FindText {} -> Text, within STARTING;
        /// Drop the capabilities with which programs are loaded and attached.
        Freeze {} -> (), within RUNNING;
    }
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
            Self::FilterMap => "FILTER",
            Self::Groups => "GROUPS",
            Self::Interfaces => "INTERFACES",
            Self::NicIndices => "NIC_INDICES",
        }
    }
}

/// The privileged half of the kernel boundary: it holds the programs.
pub trait Answer {
    /// Executes a request.
    fn answer(&mut self, request: Request) -> Reply;
}
