//! The object, and how it is prepared for this kernel before loading.

use aya::{Ebpf, EbpfError};
use undercurrent_ebpf::abi::{ABSENT, workload::ownership};
use zerocopy::IntoBytes as _;

use super::{
    cast::Casts,
    clock,
    extra::Named,
    fields::ResolvedField,
    loader,
    memory::{MapSize, Sizing},
    registers::{REGISTERS, Registers},
};
pub use crate::cgroup::Ownership;

/// The kernel side, built from `receiver-ebpf/`; a test rebuilds it and compares bytes.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!("../../ebpf/undercurrent.bpf.o");

/// The number of the hierarchy of owners in `/proc/cgroups`; zero for version 2.
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

/// What the object is set to before it is loaded.
pub struct Settings<'a> {
    /// How large maps are, and what is measured.
    pub sizing: Sizing,
    /// The signals that are on, by name.
    pub signals: &'a [&'static str],
    /// The maps whose size depends on the machine and the settings.
    pub maps: &'a [MapSize],
    /// The kernel's field offsets.
    pub fields: &'a [ResolvedField],
    /// How owners are found, where measurements are told apart by them.
    pub ownership: Option<Ownership>,
    /// Whether tracing programs may use what is kept with a socket, and follow the current task's fields.
    pub socket_storage: bool,
    /// Whether TCP's data that waited for the network is left out.
    pub excludes_blocked: bool,
    /// Whether a helper takes a socket for TCP's.
    pub tcp_sockets: bool,
    /// What gives programs typed pointers.
    pub casts: Casts,
    /// How many arguments the kernel passes at each of [`GROWN`].
    pub arguments: [usize; GROWN.len()],
    /// Functions that the user names, by the numbers of their layers.
    pub extra: &'a [Named],
    /// The layers of the way out to measure, each its bit.
    pub transmit: u32,
}

/// The tracepoints that have got more arguments over time.
pub const GROWN: [&str; 2] = ["kfree_skb", "tcp_retransmit_skb"];

/// Creates the maps, frozen where they are read-only, and readies the programs. None is loaded yet.
///
/// # Errors
/// The kernel's refusal of a map.
pub fn load(settings: &Settings<'_>) -> Result<Ebpf, EbpfError> {
    let sizing = &settings.sizing;
    let words = words(settings);
    let (guesses, bounds) = (sizing.scale.guesses(), sizing.scale.bounds());
    let offset = clock::offset();
    let mut loader = loader::without_types();
    for (symbol, value) in &words {
        loader.override_global(symbol, value, true);
    }
    loader
        .override_global("histogram.guesses", &guesses[..], true)
        .override_global("histogram.bounds", &bounds[..], true)
        .override_global("clock.offset", &offset, true);
    for map in settings.maps {
        loader.map_max_entries(map.name, number(map.entries()));
    }
    // Socket storage is used by programs alone, and needs nothing of the loader.
    loader.allow_unsupported_maps();
    loader.load(programs(settings.casts).as_bytes())
}

/// Returns the object with this kernel's function ids, aligned to the 8 bytes that ELF structures need.
fn programs(casts: Casts) -> Vec<u64> {
    let mut words = vec![0_u64; OBJECT.len().div_ceil(size_of::<u64>())];
    let object = words.as_mut_bytes();
    object[..OBJECT.len()].copy_from_slice(OBJECT);
    if let Err(error) = casts.put(object) {
        tracing::warn!("cannot insert the ids of kernel functions; programs that call them will not load: {error}");
    }
    words
}

/// Every 32-bit global, by its symbol.
fn words(settings: &Settings<'_>) -> Vec<(String, u32)> {
    let sizing = &settings.sizing;
    let (layout, functions) = (sizing.by_workload(), sizing.by_function());
    let by = settings.ownership.map_or(ownership::OFF, owner_by);
    let hierarchy = settings.ownership.map_or(0, hierarchy);
    let is_on = |symbol: &str| symbol.strip_prefix(SWITCH).is_some_and(|signal| settings.signals.contains(&signal));
    let switches = switches().into_iter().map(|symbol| (symbol.clone(), u32::from(is_on(&symbol))));
    let fields = settings.fields.iter().map(|field| (field.declaration.symbol.clone(), field.value()));
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
        .chain(fields)
        .chain(arguments)
        .chain(places)
        .chain(registers())
        .chain(named.map(|(symbol, value)| (symbol.to_owned(), value)))
        .collect()
}

/// Where kprobes find arguments, and what functions return.
fn registers() -> Vec<(String, u32)> {
    let Some(Registers { arguments: [first, second, third, ..], returned }) = REGISTERS else { return Vec::new() };
    let places = [("first", first), ("second", second), ("third", third), ("returned", returned)];
    places.map(|(name, place)| (format!("register.{name}"), place)).into()
}

/// Where the program of a layer finds its arguments.
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

/// What the symbol of a signal's switch begins with.
const SWITCH: &str = "signal.";

/// The symbol of each switch that programs read, one for each signal with a handler that may be off.
#[must_use]
pub fn switches() -> Vec<String> {
    let file = object::File::parse(OBJECT).ok();
    let symbols = file.iter().flat_map(object::Object::symbols);
    let names = symbols.filter_map(|symbol| object::ObjectSymbol::name(&symbol).ok().map(str::to_owned));
    names.filter(|name| name.starts_with(SWITCH)).collect()
}
