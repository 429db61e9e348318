//! Everything that knows the kernel: types and field offsets, hooks and their alternates, maps, clocks.
//!
//! The seam is narrow on purpose: attach on request, hand over maps.

pub mod attach;
pub mod btf;
pub mod cards;
pub mod choices;
pub mod clock;
mod code;
pub mod drops;
pub mod epoch;
pub mod extra;
pub mod fields;
pub mod groups;
mod handles;
pub mod hooks;
pub mod host;
pub mod loader;
pub mod maps;
pub mod memory;
pub mod object;
pub mod plan;
pub mod refusal;
mod registers;
mod resolved;
pub mod ring;
pub mod sample;
pub mod statistics;
mod symbols;
pub mod timestamping;

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
};

use aya::{Ebpf, EbpfError, maps::MapError as AyaMapError};

use crate::config::Means;

use self::{
    attach::Attaching,
    cards::{Cards, Found},
    drops::Reasons,
    extra::Named,
    fields::{FieldState, ResolvedField},
    hooks::Hook,
    host::Host,
    maps::{MapError, Words},
    memory::{ByFunction, ByWorkload, Sizing},
    object::Ownership,
    plan::{Outcome, Status},
    resolved::Resolved,
    statistics::Links,
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
    /// A map is missing or cannot be read.
    #[error("the map `{map}` cannot be used: {source}")]
    Map {
        /// Its name.
        map: &'static str,
        /// The reason.
        #[source]
        source: Box<AyaMapError>,
    },
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

/// What is wanted of the kernel.
pub struct Request<'a> {
    /// What is measured, and how large maps are for it.
    pub sizing: Sizing<'a>,
    /// The hooks to serve.
    pub hooks: &'a [&'static Hook],
    /// Functions that the user names as layers, as many as there are programs for.
    pub functions: &'a [String],
    /// How owners are found; `None` where nothing is told apart by workload.
    pub ownership: Option<Ownership>,
    /// How the kernel is not to be listened to.
    pub avoid: &'a [Means],
    /// Whether TCP's data that waited for the network is left out of what is measured.
    pub excludes_blocked: bool,
    /// The layers of the way out to measure, each its bit.
    pub transmit: u32,
}

/// What attaching needs of the kernel's types. It takes megabytes: let it go once all hooks are served.
pub struct Types(aya::Btf);

/// The kernel, listened to. Everything is detached when it is dropped, or when the process ends however it ends.
pub struct Kernel {
    ebpf: Ebpf,
    host: Host,
    fields: Vec<ResolvedField>,
    socket_storage: bool,
    tcp_sockets: bool,
    drop_reasons: Reasons,
    extra: Vec<Named>,
    outcomes: Vec<Outcome>,
    memory: Vec<(&'static str, usize)>,
    histograms: ByWorkload,
    by_workload: bool,
    avoid: Vec<Means>,
    by_function: ByFunction,
    found_cards: Found,
    cards: Cards,
    /// Maps that are in memory.
    mapped: RefCell<BTreeMap<&'static str, Words>>,
    /// What is asked how often kprobes were left out; found once all hooks are served.
    links: OnceCell<Links>,
    /// Held for its effect, where a hook that is served needs it.
    timestamping: Option<Timestamping>,
}

impl Kernel {
    /// Creates the maps and readies the programs. The kernel's types are parsed once, and what attaching does not need of
    /// them is let go.
    ///
    /// # Errors
    /// Where nothing can be measured at all.
    pub fn load(host: Host, request: &Request<'_>) -> Result<(Self, Types), KernelError> {
        // First, since it takes effect some milliseconds later.
        let found_cards = if request.hooks.contains(&&hooks::DRIVER) { Found::now() } else { Found::default() };
        let timestamping = stamp_packets(request.hooks.iter().copied().filter(|hook| is_needed(hook, &found_cards)));
        let Resolved { fields, types, socket_storage, tcp_sockets, casts, arguments, drop_reasons, extra } =
            Resolved::of(request)?;
        let settings = object::Settings {
            sizing: request.sizing,
            fields: &fields,
            ownership: request.ownership,
            socket_storage,
            excludes_blocked: request.excludes_blocked && !lacks(&fields, OUT_OF_ORDER),
            tcp_sockets,
            casts,
            arguments,
            extra: &extra,
            transmit: request.transmit,
        };
        let ebpf = object::load(&settings)
            .map_err(|error| KernelError::Maps(Box::new(error), host.missing_capabilities.clone()))?;
        let memory = memory::MAPS.iter().map(|map| (map.name, map.bytes(&settings.sizing))).collect();
        let by_function = request.sizing.by_function();
        let outcomes = Vec::new();
        let kernel = Self {
            ebpf,
            host,
            fields,
            socket_storage,
            tcp_sockets,
            drop_reasons,
            extra,
            outcomes,
            memory,
            histograms: request.sizing.by_workload(),
            by_workload: request.sizing.workloads.is_some(),
            avoid: request.avoid.to_vec(),
            by_function,
            found_cards,
            cards: Cards::default(),
            mapped: RefCell::default(),
            links: OnceCell::new(),
            timestamping,
        };
        Ok((kernel, Types(types)))
    }

    /// Serves hooks, each that is not served yet and that anything here makes run.
    pub fn serve(&mut self, types: &Types, hooks: &[&'static Hook]) {
        self.links.take();
        let mut attaching = Attaching { ebpf: &mut self.ebpf, types: &types.0, host: &self.host, avoid: &self.avoid };
        let needed = hooks::ALL.into_iter().filter(|hook| hooks.contains(hook) && is_needed(hook, &self.found_cards));
        plan::serve_all(&mut attaching, needed, &mut self.outcomes);
        self.outcomes.sort_by_key(|outcome| hooks::ALL.iter().position(|hook| hook.name == outcome.hook));
        if let Err(error) = self.tell_served() {
            tracing::warn!("how long packets wait, and what UDP's take to the qdisc, is not measured: {error}");
        }
    }

    /// Attaches to the functions that the user named, once all hooks are served.
    pub fn serve_functions(&mut self, types: &Types) {
        self.links.take();
        let mut attaching = Attaching { ebpf: &mut self.ebpf, types: &types.0, host: &self.host, avoid: &self.avoid };
        let outcomes = self.extra.iter().enumerate().map(|(number, named)| extra::serve(&mut attaching, number, named));
        self.outcomes.extend(outcomes);
    }

    /// The functions that the user named and programs are attached to, each with its layer's number.
    pub fn functions(&self) -> impl Iterator<Item = (usize, &str)> {
        let served = |function: &str| {
            self.outcomes.iter().any(|outcome| outcome.hook == function && outcome.status != Status::Absent)
        };
        let named = self.extra.iter().map(|named| named.function.as_str()).enumerate();
        named.filter(move |(_, function)| served(function))
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
    pub fn fields(&self) -> &[ResolvedField] {
        &self.fields
    }

    /// Why this kernel drops packets.
    #[must_use]
    pub const fn drop_reasons(&self) -> &Reasons {
        &self.drop_reasons
    }

    /// Bytes of each map whose size depends on the machine and the settings.
    #[must_use]
    pub fn memory(&self) -> &[(&'static str, usize)] {
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
        lacks(&self.fields, symbol)
    }

    /// Whether reads of a TCP connection can keep with the socket how far what came out of order reaches.
    #[must_use]
    pub fn remembers_reordered(&self) -> bool {
        self.socket_storage && !self.probes(&hooks::SOCKET_READ)
    }

    /// Whether the kernel counts the segments of a connection that came out of order.
    #[must_use]
    pub fn counts_reordered(&self) -> bool {
        !self.lacks(OUT_OF_ORDER)
    }

    /// Whether it can be kept with a socket who reads it.
    #[must_use]
    pub const fn keeps_readers(&self) -> bool {
        self.socket_storage
    }

    /// Whether programs can read the round-trip time that TCP keeps of a connection.
    #[must_use]
    pub fn tells_rtt(&self) -> bool {
        self.tcp_sockets && !self.lacks("tcp_sock.srtt_us")
    }

    /// Whether a hook is served at all.
    #[must_use]
    pub fn serves(&self, hook: &Hook) -> bool {
        self.outcomes.iter().any(|outcome| outcome.hook == hook.name && outcome.status != Status::Absent)
    }

    /// Whether kprobes serve a hook, which get at nothing that is kept with a socket.
    #[must_use]
    pub fn probes(&self, hook: &Hook) -> bool {
        self.outcomes.iter().any(|outcome| outcome.hook == hook.name && outcome.by == Some(hooks::KPROBE))
    }

    /// How often each attached program ran, and how often it could not, by the kernel's own count.
    pub fn runs(&self) -> impl Iterator<Item = (&str, statistics::Runs)> {
        let links = self.links.get_or_init(Links::of_this_process);
        self.ebpf.programs().filter_map(|(name, program)| Some((name, links.runs(program.fd().ok()?)?)))
    }
}

/// How many segments a connection got out of order.
const OUT_OF_ORDER: &str = "tcp_sock.rcv_ooopack";

fn lacks(fields: &[ResolvedField], symbol: &str) -> bool {
    let field = fields.iter().find(|field| field.declaration.symbol == symbol);
    field.is_some_and(|field| matches!(field.state, FieldState::Absent(_)))
}

/// Whether anything makes a hook's programs run to any end: where no card stamps packets, its stamps need no program.
fn is_needed(hook: &Hook, cards: &Found) -> bool {
    *hook != hooks::DRIVER || !cards.usable.is_empty()
}

/// Makes the kernel stamp received packets, where a hook compares their stamps with the clock.
fn stamp_packets(mut hooks: impl Iterator<Item = &'static Hook>) -> Option<Timestamping> {
    if !hooks.any(|hook| hook.reads_stamps) {
        return None;
    }
    let held = Timestamping::hold();
    held.inspect_err(|error| tracing::warn!("cannot switch receive timestamps on, so packets carry none: {error}")).ok()
}
