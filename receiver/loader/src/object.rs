//! The eBPF object and its configuration for this kernel before loading.

use aya::{Ebpf, EbpfError};
use undercurrent_ebpf::abi::{ABSENT, constant::CONSTANTS, cost::exact, workload::ownership};
use zerocopy::IntoBytes as _;

use undercurrent_kernel::{
    clock,
    memory::{MapSize, Sizing},
    slow::SlowLimits,
};

use super::{
    calls,
    cast::Casts,
    constants::{ConstantError, Constants},
    extra::Named,
    fields::ResolvedField,
    globals, loader,
    registers::{REGISTERS, Registers},
};
pub use crate::cgroup::Ownership;

/// The eBPF object, built from `receiver-ebpf/`. A test rebuilds it and compares the bytes.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!("../../ebpf/undercurrent.bpf.o");

/// Returns the id in `/proc/cgroups` of the hierarchy that identifies workloads; zero for version 2.
const fn hierarchy(ownership: Ownership) -> i32 {
    match ownership {
        Ownership::Unified => 0,
        Ownership::Cpu(number) => number,
    }
}

const fn owner_by(ownership: Ownership) -> u32 {
    match ownership {
        Ownership::Unified => ownership::UNIFIED,
        Ownership::Cpu(_) => ownership::CPU,
    }
}

/// The values that configure the eBPF object before loading.
pub struct Settings<'a> {
    /// The sizes of the maps.
    pub sizing: Sizing,
    /// The names of the enabled signals.
    pub signals: &'a [&'static str],
    /// The maps with a size that depends on the machine and the settings.
    pub maps: &'a [MapSize],
    /// The kernel fields that programs read.
    pub fields: &'a [ResolvedField],
    /// The method of attribution; `None` if nothing is grouped by workload.
    pub ownership: Option<Ownership>,
    /// True if tracing programs may use socket storage and dereference the current task.
    pub socket_storage: bool,
    /// True if TCP data that waited for an earlier segment is excluded.
    pub excludes_blocked: bool,
    /// True if tracing programs may cast a socket to a TCP socket.
    pub tcp_sockets: bool,
    /// True if tracing programs may read the user registers of a task.
    pub task_registers: bool,
    /// The kernel functions that give programs typed pointers.
    pub casts: Casts,
    /// The number of arguments of each tracepoint in [`GROWN`].
    pub arguments: [usize; GROWN.len()],
    /// Functions that the user named, indexed by layer.
    pub extra: &'a [Named],
    /// The transmit layers to measure, one bit each.
    pub transmit: u32,
    /// The network events to measure exactly, one of [`exact`](undercurrent_ebpf::abi::cost::exact).
    pub exact: u32,
    /// The bits of the processor's counters.
    pub counters: u32,
    /// The limits of slow packets.
    pub slow: SlowLimits,
}

/// The tracepoints that gained arguments in newer kernels.
pub const GROWN: [&str; 2] = ["kfree_skb", "tcp_retransmit_skb"];

/// Creates the maps, freezes the read-only ones and prepares the programs; no program is loaded.
///
/// # Errors
/// If the kernel refuses a map.
pub fn load(settings: &Settings<'_>, programs: &Programs) -> Result<Ebpf, EbpfError> {
    let sizing = &settings.sizing;
    let (guesses, bounds) = (sizing.scale.guesses(), sizing.scale.bounds());
    let (offset, calls) = (clock::offset(), calls::network());
    let mut loader = loader::without_types();
    loader
        .override_global("histogram.guesses", &guesses[..], true)
        .override_global("histogram.bounds", &bounds[..], true)
        .override_global("clock.offset", &offset, true)
        .override_global("sample.calls", &calls[..], true);
    for map in settings.maps {
        loader.map_max_entries(map.name, number(map.entries()));
    }
    // Only programs use socket storage; aya has no type for the map.
    loader.allow_unsupported_maps();
    loader.load(programs.0.as_bytes())
}

/// The object with this kernel's numbers in its instructions, aligned to the 8 bytes that ELF structures need.
pub struct Programs(Vec<u64>);

impl Programs {
    /// Writes the settings, the offsets of fields and the ids of kernel functions.
    ///
    /// # Errors
    /// If the object is damaged.
    pub fn new(settings: &Settings<'_>) -> Result<Self, ConstantError> {
        let mut constants = Constants::new(OBJECT, settings.fields)?;
        for (symbol, number) in numbers(settings) {
            constants.set(&symbol, number)?;
        }
        let mut words = vec![0_u64; OBJECT.len().div_ceil(size_of::<u64>())];
        let object = words.as_mut_bytes();
        object[..OBJECT.len()].copy_from_slice(OBJECT);
        constants.write(object)?;
        settings.casts.put(object)?;
        Ok(Self(words))
    }
}

/// Returns the numbers of the settings that differ from their defaults, by symbol.
fn numbers(settings: &Settings<'_>) -> Vec<(String, u32)> {
    let sizing = &settings.sizing;
    let (layout, functions) = (sizing.by_workload(), sizing.by_function());
    let by = settings.ownership.map_or(ownership::OFF, owner_by);
    let hierarchy = settings.ownership.map_or(0, hierarchy);
    let is_on = |symbol: &str| symbol.strip_prefix(SWITCH).is_some_and(|signal| settings.signals.contains(&signal));
    let switches = switches().into_iter().map(|symbol| (symbol.clone(), u32::from(is_on(&symbol))));
    let named = [
        ("owner.by", by),
        ("owner.storage", u32::from(settings.socket_storage)),
        ("owner.cast", u32::from(settings.casts.context.is_some())),
        ("tcp.cast", u32::from(settings.tcp_sockets)),
        ("tcp.type", settings.casts.tcp_socket.unwrap_or(0)),
        ("packets.by", sizing.filter_keys.bits() | sizing.group_by.bits()),
        ("filter.queue", sizing.filter_keys.queue()),
        ("head_of_line.exclude", u32::from(settings.excludes_blocked)),
        ("cgroup.hierarchy", hierarchy.cast_unsigned()),
        ("transmit.layers", settings.transmit),
        ("network_cpu.exact", settings.exact),
        ("network_cpu.divides", u32::from(settings.exact != exact::NONE && by != ownership::OFF)),
        ("processor.counters", settings.counters),
        ("slow.interval", settings.slow.interval),
        ("slow.uniform_interval", settings.slow.uniform_interval),
        ("slow.uniform_mask", settings.slow.uniform_mask),
        ("slow.reader_states", u32::from(settings.slow.reader_states)),
        ("payload.inspected", u32::from(settings.slow.inspects)),
        ("payload.searched", u32::from(settings.slow.searches)),
        ("payload.packets", u32::from(settings.slow.inspects && settings.casts.packet.is_some())),
        ("sample.registers", u32::from(settings.task_registers)),
        ("sample.high_water", number(sizing.samples / 4)),
        ("workload.histogram", number(layout.histogram)),
        ("workload.shard_mask", number(layout.shards - 1)),
        ("workload.shared", u32::from(layout.shared)),
        ("extra.cell", number(functions.cell)),
        ("extra.shard", number(functions.shard)),
        ("extra.groups", number(functions.groups)),
    ];
    let arguments =
        GROWN.iter().zip(settings.arguments).map(|(name, count)| (format!("arguments.{name}"), number(count)));
    let places = settings.extra.iter().enumerate().flat_map(|(layer, named)| places(layer, named));
    switches
        .chain(arguments)
        .chain(places)
        .chain(registers())
        .chain(named.map(|(symbol, value)| (symbol.to_owned(), value)))
        .collect()
}

/// Returns the settings that locate arguments and the return value in a kprobe's registers.
fn registers() -> Vec<(String, u32)> {
    let Some(Registers { arguments: [first, second, third, ..], returned }) = REGISTERS else { return Vec::new() };
    let places = [("first", first), ("second", second), ("third", third), ("returned", returned)];
    places.map(|(name, place)| (format!("register.{name}"), place)).into()
}

/// Returns the settings that locate the arguments of a layer's function.
fn places(layer: usize, named: &Named) -> Vec<(String, u32)> {
    let Ok(place) = &named.found else { return Vec::new() };
    let symbol = |argument| format!("extra.{layer}.{argument}");
    let register = REGISTERS.map_or(0, |registers| registers.arguments[place.packet as usize]);
    vec![
        (symbol("packet"), place.packet),
        (symbol("socket"), place.socket.unwrap_or(ABSENT)),
        (symbol("register"), register),
    ]
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The prefix of the symbols that enable signals.
const SWITCH: &str = "signal.";

/// Returns the symbols that enable signals, one for each signal with an optional handler.
#[must_use]
pub fn switches() -> Vec<String> {
    let declared = globals::declared(OBJECT, CONSTANTS).unwrap_or_default();
    declared.into_iter().map(|(symbol, _)| symbol).filter(|symbol| symbol.starts_with(SWITCH)).collect()
}
