//! Everything that knows the kernel: types and field offsets, hooks and their alternates, maps, clocks.
//!
//! The seam is narrow on purpose: attach on request, hand over maps.

pub mod attach;
pub mod btf;
mod cast;
pub mod client;
pub mod clock;
pub mod drops;
pub mod epoch;
pub mod extra;
pub mod fields;
pub mod filter_map;
pub mod groups;
mod handles;
pub mod hooks;
pub mod host;
pub mod loader;
pub mod maps;
pub mod memory;
pub mod nics;
pub mod object;
pub mod plan;
pub mod refusal;
mod registers;
mod resolved;
pub mod ring;
pub mod sample;
pub mod service;
pub mod statistics;
mod symbols;
pub mod task_clock;
pub mod timestamping;

use std::{cell::RefCell, collections::BTreeMap};

use aya::{
    EbpfError,
    maps::{MapData, RingBuf},
};

use crate::options::AttachKind;

use self::{
    client::{Client, Maps, ServiceError},
    drops::Reasons,
    fields::{FieldFact, FieldState, ResolvedField},
    hooks::Hook,
    host::Host,
    maps::{MapError, Words},
    memory::{ByFunction, ByWorkload, MapSize, Sizing},
    nics::{NicInventory, Nics},
    object::Ownership,
    plan::{Outcome, Status},
    service::Facts,
    statistics::Runs,
    task_clock::TaskClock,
    timestamping::Timestamping,
};

/// Why nothing at all can be measured on this kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The kernel carries no type information.
    #[error(
        "{0}; this needs a kernel built with CONFIG_DEBUG_INFO_BTF=y (Debian 11, Ubuntu 20.10, RHEL 8.2 and later have it)"
    )]
    NoBtf(#[from] btf::ReadError),
    /// The kernel's type information cannot be understood.
    #[error("the kernel's type information in /sys/kernel/btf/vmlinux is damaged: {0}")]
    Btf(#[from] btf::BtfError),
    /// The object built into this binary is damaged.
    #[error("the built-in kernel object is damaged: {0}; rebuild Undercurrent")]
    Object(#[from] fields::DeclarationError),
    /// The kernel refused the maps.
    #[error("{}", maps_refused(.0, .1))]
    Maps(#[source] Box<EbpfError>, Vec<String>),
    /// The object has no such map.
    #[error("the built-in kernel object has no map `{0}`; rebuild Undercurrent")]
    NoMap(&'static str),
    /// The maps' descriptors cannot be copied.
    #[error("cannot open the maps a second time: {0}; raise the limit of open files")]
    Descriptors(#[source] std::io::Error),
    /// The loader ended, or failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// A map cannot be mapped into memory.
    #[error(transparent)]
    Mmap(#[from] MapError),
    /// A ring cannot be watched.
    #[error("cannot watch the ring `{map}`: {source}")]
    Ring {
        /// Its name.
        map: &'static str,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The sidecar cannot tell its network namespace.
    #[error("cannot tell this process's network namespace: {0}; is /proc mounted?")]
    Namespace(#[source] std::io::Error),
    /// The sidecar cannot follow the wall clock.
    #[error("cannot watch the wall clock: {0}")]
    Clock(#[source] std::io::Error),
}

fn maps_refused(error: &EbpfError, missing: &[String]) -> String {
    if missing.is_empty() {
        format!("the kernel refused to create the maps: {error}; `undercurrent doctor` shows what this kernel allows")
    } else {
        format!("the kernel refused to create the maps: {error}; run as root, or grant {}", missing.join(", "))
    }
}

/// What the settings require of the kernel.
pub struct LoadOptions<'a> {
    /// What is measured, and how large maps are for it.
    pub sizing: Sizing,
    /// The signals that are on, by name.
    pub signals: &'a [&'static str],
    /// Every map whose size depends on the machine and the settings.
    pub maps: Vec<MapSize>,
    /// The hooks to serve.
    pub hooks: &'a [&'static Hook],
    /// Functions that the user names as layers, as many as there are programs for.
    pub functions: &'a [String],
    /// How owners are found; `None` if nothing is grouped by workload.
    pub ownership: Option<Ownership>,
    /// The kinds of attachment to avoid.
    pub avoid: &'a [AttachKind],
    /// True if TCP data that waited for the network is excluded.
    pub excludes_blocked: bool,
    /// The transmit layers to measure, each its bit.
    pub transmit: u32,
}

/// The loaded programs and their maps, as the worker sees them. Everything is detached when it is dropped, or when the
/// process ends.
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
    rings: BTreeMap<&'static str, RingBuf<MapData>>,
    /// Maps that are in memory.
    mapped: RefCell<BTreeMap<&'static str, Words>>,
}

/// The rings of the object.
const RINGS: [&str; 1] = ["CGROUPS"];

impl Kernel {
    /// Creates the maps and prepares the programs in this process.
    ///
    /// # Errors
    /// If nothing can be measured.
    pub fn load(host: Host, required: &LoadOptions<'_>) -> Result<Self, KernelError> {
        let (client, facts, maps) = Client::load(host.clone(), required)?;
        Self::with(host, required, client, facts, maps)
    }

    /// Makes the loader create the maps and prepare the programs. `required` is what the loader was started with.
    ///
    /// # Errors
    /// If nothing can be measured, or the loader ends.
    pub fn load_remotely(host: Host, required: &LoadOptions<'_>, loader: Client) -> Result<Self, KernelError> {
        let (facts, maps) = loader.load_remotely()?;
        Self::with(host, required, loader, facts, maps)
    }

    fn with(
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
            rings,
            mapped: RefCell::default(),
        })
    }

    /// Serves hooks, each that is not served yet and that something on this machine runs.
    ///
    /// # Errors
    /// If the loader ended.
    pub fn serve(&mut self, hooks: &[&'static Hook]) -> Result<(), KernelError> {
        self.outcomes = self.client.serve(hooks.iter().map(|hook| hook.name))?;
        Ok(())
    }

    /// Attaches to the functions that the user named, once all hooks are served, and frees the kernel's types.
    ///
    /// # Errors
    /// If the loader ended.
    pub fn serve_functions(&mut self) -> Result<(), KernelError> {
        self.outcomes = self.client.serve_functions()?;
        Ok(self.client.release_types()?)
    }

    /// The functions that the user named and programs are attached to, each with its layer's number.
    pub fn functions(&self) -> impl Iterator<Item = (usize, &str)> {
        let served = |function: &str| {
            self.outcomes.iter().any(|outcome| outcome.hook == function && outcome.status != Status::Unavailable)
        };
        let named = self.facts.functions.iter().map(String::as_str).enumerate();
        named.filter(move |(_, function)| served(function))
    }

    /// Returns false once the loader failed to carry out a request in time: the programs cannot be managed any more.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client.is_connected()
    }

    /// Facts about the running kernel.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// What came of each hook asked for.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// The fields that programs read, as this kernel has them.
    #[must_use]
    pub fn fields(&self) -> &[FieldFact] {
        &self.facts.fields
    }

    /// Returns which times this kernel excludes from the run time of tasks.
    #[must_use]
    pub const fn task_clock(&self) -> TaskClock {
        self.facts.task_clock
    }

    /// Why this kernel drops packets.
    #[must_use]
    pub const fn drop_reasons(&self) -> &Reasons {
        &self.facts.drop_reasons
    }

    /// The size of each map whose size depends on the machine and the settings.
    #[must_use]
    pub fn memory(&self) -> &[MapSize] {
        &self.memory
    }

    /// How the histograms of workloads and of groups lie in memory.
    #[must_use]
    pub const fn histograms(&self) -> ByWorkload {
        self.histograms
    }

    /// Whether anything is told apart by workload.
    #[must_use]
    pub const fn by_workload(&self) -> bool {
        self.by_workload
    }

    /// How the histograms of functions that the user named lie in memory.
    #[must_use]
    pub const fn by_function(&self) -> ByFunction {
        self.by_function
    }

    /// Whether this kernel has no such field.
    #[must_use]
    pub fn lacks(&self, symbol: &str) -> bool {
        self.facts.fields.iter().any(|field| field.symbol == symbol && field.absence.is_some())
    }

    /// Whether reads of a TCP connection can keep with the socket how far what came out of order reaches.
    #[must_use]
    pub fn tracks_reordered(&self) -> bool {
        self.facts.socket_storage && !self.probes(&hooks::SOCKET_READ)
    }

    /// Whether the kernel counts the segments of a connection that came out of order.
    #[must_use]
    pub fn counts_reordered(&self) -> bool {
        !self.lacks(OUT_OF_ORDER)
    }

    /// Whether it can be kept with a socket who reads it.
    #[must_use]
    pub const fn stores_readers(&self) -> bool {
        self.facts.socket_storage
    }

    /// Whether programs can read the round-trip time that TCP keeps of a connection.
    #[must_use]
    pub fn reads_rtt(&self) -> bool {
        self.facts.tcp_sockets && !self.lacks("tcp_sock.srtt_us")
    }

    /// Whether a hook is served at all.
    #[must_use]
    pub fn serves(&self, hook: &Hook) -> bool {
        self.outcomes.iter().any(|outcome| outcome.hook == hook.name && outcome.status != Status::Unavailable)
    }

    /// Whether kprobes serve a hook, which get at nothing that is kept with a socket.
    #[must_use]
    pub fn probes(&self, hook: &Hook) -> bool {
        self.outcomes.iter().any(|outcome| outcome.hook == hook.name && outcome.by.as_deref() == Some(hooks::KPROBE))
    }

    /// How often each attached program ran, and how often it could not, by the kernel's own count.
    ///
    /// # Errors
    /// If the loader ended.
    pub fn runs(&self) -> Result<BTreeMap<String, Runs>, ServiceError> {
        self.client.runs()
    }
}

/// How many segments a connection got out of order.
const OUT_OF_ORDER: &str = "tcp_sock.rcv_ooopack";

fn lacks(fields: &[ResolvedField], symbol: &str) -> bool {
    let field = fields.iter().find(|field| field.declaration.symbol == symbol);
    field.is_some_and(|field| matches!(field.state, FieldState::Absent(_)))
}

/// Whether anything makes a hook's programs run to any end: where no NIC stamps packets, its stamps need no program.
fn is_needed(hook: &Hook, nics: &NicInventory) -> bool {
    *hook != hooks::DRIVER || !nics.usable.is_empty()
}

/// Makes the kernel stamp received packets, where a hook compares their stamps with the clock.
fn enable_timestamps(mut hooks: impl Iterator<Item = &'static Hook>) -> Option<Timestamping> {
    if !hooks.any(|hook| hook.reads_timestamps) {
        return None;
    }
    let held = Timestamping::hold();
    held.inspect_err(|error| tracing::warn!("cannot switch receive timestamps on, so packets carry none: {error}")).ok()
}
