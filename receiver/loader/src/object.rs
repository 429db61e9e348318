//! The eBPF object and its configuration for this kernel before loading.

use aya::{Ebpf, EbpfError};
use undercurrent_ebpf::abi::{ABSENT, constant::CONSTANTS, extra::LAYERS, workload::ownership};
use undercurrent_kernel::{
    clock,
    constant::{Constant, Feature},
    memory::{MapSize, Sizing},
};
use zerocopy::IntoBytes as _;

use super::{
    calls,
    cast::Casts,
    constants::{ConstantError, Constants},
    extra::Named,
    fields::{self, ResolvedField},
    globals::{self, DeclarationError},
    loader,
    registers::REGISTERS,
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
    /// The constants that do not depend on the kernel's types.
    pub constants: &'a [Constant],
    /// The maps with a size that depends on the machine and the settings.
    pub maps: &'a [MapSize],
    /// The properties of the running kernel that programs depend on.
    pub kernel: KernelFacts<'a>,
}

/// Properties of the running kernel, and of attached devices, that determine constants.
#[derive(Clone, Copy, Default)]
pub struct KernelFacts<'a> {
    /// The kernel fields that programs read.
    pub fields: &'a [ResolvedField],
    /// The method of attribution; `None` if nothing is grouped by workload.
    pub ownership: Option<Ownership>,
    /// True if tracing programs may use socket storage and dereference the current task.
    pub socket_storage: bool,
    /// True if tracing programs may cast a socket to a TCP socket.
    pub tcp_sockets: bool,
    /// True if tracing programs may read the user registers of a task.
    pub task_registers: bool,
    /// The kernel functions that give programs typed pointers.
    pub casts: Casts,
    /// True if programs of a cgroup can be attached and read the receiving socket of a packet.
    pub socket_of_packet: bool,
    /// The number of arguments of each tracepoint in [`GROWN`].
    pub arguments: [usize; GROWN.len()],
    /// Functions that the user named, indexed by layer.
    pub extra: &'a [Named],
    /// The bits of the processor's counters that are open.
    pub counters: u32,
    /// One more than the highest id of a CPU.
    pub cpus: usize,
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
    /// Writes the constants, the offsets of fields and the ids of kernel functions.
    ///
    /// # Errors
    /// If the object is damaged.
    pub fn new(settings: &Settings<'_>) -> Result<Self, ConstantError> {
        let mut constants = Constants::new(OBJECT, settings.kernel.fields)?;
        for constant in settings.constants {
            constants.set(constant.symbol, settings.kernel.value(constant))?;
        }
        for (symbol, number) in settings.kernel.constants() {
            constants.set(&symbol, number)?;
        }
        let mut words = vec![0_u64; OBJECT.len().div_ceil(size_of::<u64>())];
        let object = words.as_mut_bytes();
        object[..OBJECT.len()].copy_from_slice(OBJECT);
        constants.write(object)?;
        settings.kernel.casts.put(object)?;
        Ok(Self(words))
    }
}

impl KernelFacts<'_> {
    /// Returns the number of a constant on this kernel.
    fn value(&self, constant: &Constant) -> u32 {
        let has_feature = match constant.requires {
            None => true,
            Some(Feature::Field(symbol)) => !fields::lacks(self.fields, symbol),
            Some(Feature::PacketPayload) => self.casts.packet.is_some(),
            Some(Feature::SocketOfPacket) => self.socket_of_packet,
        };
        if has_feature { constant.value } else { 0 }
    }

    /// Returns the constants that only the loader knows. The symbols do not depend on the kernel.
    fn constants(&self) -> Vec<(String, u32)> {
        let by = self.ownership.map_or(ownership::OFF, owner_by);
        let hierarchy = self.ownership.map_or(0, hierarchy);
        let (segment, control) = self.casts.tcp_segment.unwrap_or_default();
        let named = [
            ("owner.by", by),
            ("owner.storage", u32::from(self.socket_storage)),
            ("owner.cast", u32::from(self.casts.context.is_some())),
            ("cgroup.hierarchy", hierarchy.cast_unsigned()),
            ("cgroup.cpus", number(self.cpus)),
            ("tcp.cast", u32::from(self.tcp_sockets)),
            ("tcp.type", self.casts.tcp_socket.unwrap_or(0)),
            ("tcp.segment", segment),
            ("tcp.control", control),
            ("processor.counters", self.counters),
            ("sample.registers", u32::from(self.task_registers)),
        ];
        let arguments =
            GROWN.iter().zip(self.arguments).map(|(name, count)| (format!("arguments.{name}"), number(count)));
        let places = (0..LAYERS).flat_map(|layer| places(layer, self.extra.get(layer)));
        let named = named.map(|(symbol, value)| (symbol.to_owned(), value));
        named.into_iter().chain(arguments).chain(places).chain(registers()).collect()
    }
}

/// Returns the constants that locate arguments in a kprobe's registers.
fn registers() -> [(String, u32); 3] {
    let [first, second, third, ..] = REGISTERS.unwrap_or_default();
    let places = [("first", first), ("second", second), ("third", third)];
    places.map(|(name, place)| (format!("register.{name}"), place))
}

/// Returns the constants that locate the arguments of a layer's function.
fn places(layer: usize, named: Option<&Named>) -> [(String, u32); 3] {
    let place = named.and_then(|named| named.found.as_ref().ok());
    let packet = place.map_or(0, |place| place.packet);
    let socket = place.and_then(|place| place.socket).unwrap_or(ABSENT);
    let register = REGISTERS.map_or(0, |registers| registers[packet as usize]);
    let places = [("packet", packet), ("socket", socket), ("register", register)];
    places.map(|(argument, value)| (format!("extra.{layer}.{argument}"), value))
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the symbols of the constants that the object declares.
///
/// # Errors
/// If the object is damaged.
pub fn declared_constants() -> Result<Vec<String>, DeclarationError> {
    Ok(globals::declared(OBJECT, CONSTANTS)?.into_iter().map(|(symbol, _)| symbol).collect())
}

/// Returns the symbols of the constants that only the loader knows.
#[must_use]
pub fn own_constants() -> Vec<String> {
    KernelFacts::default().constants().into_iter().map(|(symbol, _)| symbol).collect()
}
