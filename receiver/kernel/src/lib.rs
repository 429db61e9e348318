//! The kernel boundary: types and field offsets, hooks and their alternates, maps, clocks.
//!
//! The interface is small: callers attach hooks and read maps.

use undercurrent_base::namespaces;
use undercurrent_channel as channel;
use undercurrent_host::{cgroup, sysfs};
use undercurrent_options as options;
use undercurrent_telemetry as telemetry;

pub mod client;
pub mod clock;
pub mod constant;
pub mod counters;
pub mod cpu_events;
pub mod cpu_sampling;
pub mod criteria;
pub mod drops;
pub mod epoch;
pub mod fields;
pub mod filter_map;
pub mod groups;
mod handles;
pub mod hooks;
pub mod host;
pub mod maps;
pub mod memory;
pub mod messages;
pub mod nic_inventory;
pub mod nics;
pub mod plan;
pub mod refusal;
pub mod ring;
pub mod sample;
pub mod slow;
pub mod statistics;
mod symbol;
pub mod task_clock;
pub mod text;

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    io,
};

use aya::maps::{MapData, RingBuf};

use crate::{cgroup::Ownership, options::AttachKind};

use self::{
    client::{Client, Maps, ServiceError},
    constant::Constant,
    counters::{Events, Wanted},
    drops::Reasons,
    fields::FieldFact,
    hooks::Hook,
    host::Host,
    maps::{MapError, Words},
    memory::{ByFunction, ByWorkload, MapSize, Sizing},
    messages::{Facts, FindText, Freeze, ReadRuns, ReleaseTypes, Serve, ServeFunctions},
    nic_inventory::NicInventory,
    nics::Nics,
    plan::{Outcome, Status},
    statistics::Runs,
    task_clock::TaskClock,
    text::Text,
};

/// An error after which nothing can be measured on this kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The embedded eBPF object lacks a map.
    #[error("the embedded eBPF object has no map `{0}`; rebuild Undercurrent")]
    NoMap(&'static str),
    /// The loader process ended or failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// `mmap` of a map failed.
    #[error(transparent)]
    Mmap(#[from] MapError),
    /// A ring buffer cannot be opened.
    #[error("cannot open the ring buffer `{map}`: {source}")]
    Ring {
        /// The name of the map.
        map: &'static str,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The inode of this process's network namespace cannot be read.
    #[error("cannot read the network namespace of this process: {0}; check that /proc is mounted")]
    Namespace(#[source] io::Error),
    /// The wall clock cannot be followed.
    #[error("cannot watch the wall clock: {0}")]
    Clock(#[source] io::Error),
}

/// Requirements of the settings on the kernel.
pub struct LoadOptions<'a> {
    /// The sizes of the maps.
    pub sizing: Sizing,
    /// The constants of the programs. Others keep their defaults, or the loader computes them.
    pub constants: Vec<Constant>,
    /// The maps with a size that depends on the machine and the settings.
    pub maps: Vec<MapSize>,
    /// The hooks to attach.
    pub hooks: &'a [&'static Hook],
    /// Functions that the user names as layers; at most one per program.
    pub functions: &'a [String],
    /// The method of attribution; `None` if nothing is grouped by workload.
    pub ownership: Option<Ownership>,
    /// The kinds of attachment to avoid.
    pub avoid: &'a [AttachKind],
    /// The functions that samples are classified by.
    pub classified: &'a [String],
    /// The processor's counters to read; `None` if none are read.
    pub counters: Option<Wanted>,
    /// The events that interrupt CPUs as the processor's counters do.
    pub interrupts: Events,
    /// The hooks that are attached only if the machine has counters.
    pub counter_hooks: &'a [&'static Hook],
    /// The hyper-thread sibling of each CPU.
    pub siblings: Vec<Option<u32>>,
}

/// The loaded programs and their maps, from the worker's side. Dropping it, or the end of the process, detaches all
/// programs.
pub struct Kernel {
    client: Client,
    host: Host,
    facts: Facts,
    outcomes: Vec<Outcome>,
    memory: Vec<MapSize>,
    histograms: ByWorkload,
    by_workload: bool,
    by_function: ByFunction,
    found_nics: NicInventory,
    nics: Nics,
    maps: Maps,
    rings: RefCell<BTreeMap<&'static str, RingBuf<MapData>>>,
    /// Maps that are mapped into memory.
    mapped: RefCell<BTreeMap<&'static str, Words>>,
    /// The functions that samples are classified by, once they have been found.
    text: OnceCell<Result<Text, ServiceError>>,
}

/// The ring buffers of the eBPF object.
const RINGS: [&str; 3] = ["CGROUPS", "SAMPLES", "SLOW_PACKETS"];

impl Kernel {
    /// Lets the loader process create the maps and prepare the programs. The loader was started with `required`.
    ///
    /// # Errors
    /// If nothing can be measured, or the loader process ended.
    pub fn load_remotely(host: Host, required: &LoadOptions<'_>, loader: Client) -> Result<Self, KernelError> {
        let (facts, maps) = loader.load_remotely()?;
        Self::with(host, required, loader, facts, maps)
    }

    /// Uses loaded programs and their maps.
    ///
    /// # Errors
    /// If a map is missing, or cannot be mapped into memory.
    pub fn with(
        host: Host,
        required: &LoadOptions<'_>,
        client: Client,
        facts: Facts,
        mut maps: Maps,
    ) -> Result<Self, KernelError> {
        let sizing = required.sizing;
        let mut rings = BTreeMap::new();
        for map in RINGS {
            let descriptor = maps.remove(map).ok_or(KernelError::NoMap(map))?;
            rings.insert(map, ring::map(descriptor).map_err(|source| KernelError::Ring { map, source })?);
        }
        Ok(Self {
            client,
            host,
            outcomes: Vec::new(),
            memory: required.maps.clone(),
            histograms: sizing.by_workload(),
            by_workload: sizing.workloads.is_some(),
            by_function: sizing.by_function(),
            found_nics: facts.nics.clone(),
            facts,
            nics: Nics::default(),
            maps,
            rings: RefCell::new(rings),
            mapped: RefCell::default(),
            text: OnceCell::new(),
        })
    }

    /// Attaches hooks. Skips hooks that are attached, and hooks that no NIC of this machine can trigger.
    ///
    /// # Errors
    /// If the loader process ended.
    pub fn serve(&mut self, hooks: &[&'static Hook]) -> Result<(), KernelError> {
        self.outcomes = self.client.call(Serve { hooks: hooks.iter().map(|hook| hook.name.into()).collect() })?;
        Ok(())
    }

    /// Attaches to the functions that the user named, then frees the kernel's BTF. Call it after all hooks are served.
    ///
    /// # Errors
    /// If the loader process ended.
    pub fn serve_functions(&mut self) -> Result<(), KernelError> {
        self.outcomes = self.client.call(ServeFunctions {})?;
        Ok(self.client.call(ReleaseTypes {})?)
    }

    /// Returns the attached functions that the user named, each with the number of its layer.
    pub fn functions(&self) -> impl Iterator<Item = (usize, &str)> {
        let served = |function: &str| {
            self.outcomes.iter().any(|outcome| outcome.hook == function && outcome.status != Status::Unavailable)
        };
        let named = self.facts.functions.iter().map(String::as_str).enumerate();
        named.filter(move |(_, function)| served(function))
    }

    /// Returns false after a request to the loader failed; the worker can then no longer manage the programs.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client.is_connected()
    }

    /// Lets the loader drop the capabilities with which programs are loaded and attached.
    ///
    /// # Errors
    /// If the loader process ended, or the kernel refuses.
    pub fn freeze(&self) -> Result<(), ServiceError> {
        self.client.call(Freeze {})
    }

    /// Closes the descriptors of the maps. Maps that are mapped into memory and ring buffers stay usable; no other map can be mapped
    /// afterwards.
    pub fn close_maps(&mut self) {
        self.maps.clear();
    }

    /// Facts about the running kernel.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the outcome of each requested hook.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Returns the fields that programs read, resolved in this kernel.
    #[must_use]
    pub fn fields(&self) -> &[FieldFact] {
        &self.facts.fields
    }

    /// Returns the times that this kernel excludes from the run time of tasks.
    #[must_use]
    pub const fn task_clock(&self) -> TaskClock {
        self.facts.task_clock
    }

    /// Returns the bits of the processor's counters that programs read.
    #[must_use]
    pub const fn counters(&self) -> u32 {
        self.facts.counters
    }

    /// Returns the drop reasons of this kernel.
    #[must_use]
    pub const fn drop_reasons(&self) -> &Reasons {
        &self.facts.drop_reasons
    }

    /// Returns the sizes of the maps that depend on the machine and the settings.
    #[must_use]
    pub fn memory(&self) -> &[MapSize] {
        &self.memory
    }

    /// Returns the memory layout of the histograms of workloads and groups.
    #[must_use]
    pub const fn histograms(&self) -> ByWorkload {
        self.histograms
    }

    /// Returns true if any measurement is grouped by workload.
    #[must_use]
    pub const fn by_workload(&self) -> bool {
        self.by_workload
    }

    /// Returns the memory layout of the histograms of functions that the user named.
    #[must_use]
    pub const fn by_function(&self) -> ByFunction {
        self.by_function
    }

    /// Returns true if this kernel lacks the field.
    #[must_use]
    pub fn lacks(&self, symbol: &str) -> bool {
        self.facts.fields.iter().any(|field| field.symbol == symbol && field.absence.is_some())
    }

    /// Returns true if programs can store the end of a TCP connection's out-of-order data in socket storage.
    #[must_use]
    pub fn tracks_reordered(&self) -> bool {
        self.facts.socket_storage && !self.probes(&hooks::SOCKET_READ)
    }

    /// Returns true if the kernel counts out-of-order segments of a connection.
    #[must_use]
    pub fn counts_reordered(&self) -> bool {
        !self.lacks(OUT_OF_ORDER)
    }

    /// Returns true if programs can store a socket's reader in socket storage.
    #[must_use]
    pub const fn stores_readers(&self) -> bool {
        self.facts.socket_storage
    }

    /// Returns true if programs can read the smoothed round-trip time of a TCP connection.
    #[must_use]
    pub fn reads_rtt(&self) -> bool {
        self.facts.tcp_sockets && !self.lacks("tcp_sock.srtt_us")
    }

    /// Returns true if at least one program of the hook is attached.
    #[must_use]
    pub fn serves(&self, hook: &Hook) -> bool {
        self.outcomes.iter().any(|outcome| outcome.hook == hook.name && outcome.status != Status::Unavailable)
    }

    /// Returns true if kprobes serve a hook. Kprobes cannot access socket storage.
    #[must_use]
    pub fn probes(&self, hook: &Hook) -> bool {
        self.is_served_by(hook, hooks::KPROBE)
    }

    /// Returns true if an alternate serves a hook.
    #[must_use]
    pub fn is_served_by(&self, hook: &Hook, alternate: &str) -> bool {
        self.outcomes.iter().any(|outcome| outcome.hook == hook.name && outcome.by.as_deref() == Some(alternate))
    }

    /// Returns the functions that samples are classified by.
    ///
    /// # Errors
    /// If the loader process ended, or the kernel hides addresses.
    pub fn text(&self) -> Result<Text, ServiceError> {
        self.text.get_or_init(|| self.client.call(FindText {})).clone()
    }

    /// Returns the kernel's counts of runs and missed runs of each attached program.
    ///
    /// # Errors
    /// If the loader process ended.
    pub fn runs(&self) -> Result<BTreeMap<String, Runs>, ServiceError> {
        self.client.call(ReadRuns {})
    }
}

/// The field with the number of out-of-order segments that a connection received.
pub const OUT_OF_ORDER: &str = "tcp_sock.rcv_ooopack";
