//! The object, and how it is prepared for this kernel before loading.

use aya::{Ebpf, EbpfError};
use undercurrent_ebpf::abi::{latency::LatencyCells, softirq::SoftirqCells};

use super::{clock, fields::ResolvedField, loader, maps::ByCpu};
use crate::telemetry::Scale;

/// The kernel side, built from `receiver-ebpf/`; a test rebuilds it and compares bytes.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!("../../ebpf/undercurrent.bpf.o");

/// What the object is set to before it is loaded.
pub struct Settings<'a> {
    /// The signals that are on, by name.
    pub signals: &'a [&'static str],
    /// The histograms' scale.
    pub scale: Scale,
    /// Possible CPUs.
    pub cpus: usize,
    /// The kernel's field offsets.
    pub fields: &'a [ResolvedField],
}

/// A map with one entry for each CPU: its name, and its bytes for a number of CPUs.
pub struct PlannedMap {
    /// The map's symbol.
    pub name: &'static str,
    bytes: fn(usize) -> usize,
    /// The signals that write it: it takes one entry where all of them are off.
    pub signals: &'static [&'static str],
}

impl PlannedMap {
    /// Bytes of kernel memory for the signals that are on.
    #[must_use]
    pub fn bytes(&self, cpus: usize, signals: &[&str]) -> usize {
        (self.bytes)(self.entries(cpus, signals))
    }

    fn entries(&self, cpus: usize, signals: &[&str]) -> usize {
        if self.signals.iter().any(|signal| signals.contains(signal)) { cpus } else { 1 }
    }
}

/// Every map whose size depends on the machine.
pub static MAPS: [PlannedMap; 2] = [
    PlannedMap { name: "LATENCY", bytes: ByCpu::<LatencyCells>::bytes, signals: &["latency"] },
    PlannedMap { name: "SOFTIRQ", bytes: ByCpu::<SoftirqCells>::bytes, signals: &["network_cpu", "softirq_wait"] },
];

/// Creates the maps, frozen where they are read-only, and readies the programs. None is loaded yet.
///
/// # Errors
/// The kernel's refusal of a map.
pub fn load(settings: &Settings<'_>) -> Result<Ebpf, EbpfError> {
    let switches: Vec<(String, u32)> =
        SWITCHES.iter().map(|name| (format!("signal.{name}"), u32::from(settings.signals.contains(name)))).collect();
    let (guesses, bounds) = (settings.scale.guesses(), settings.scale.bounds());
    let offset = clock::offset();
    let fields: Vec<(&str, u32)> =
        settings.fields.iter().map(|field| (field.declaration.symbol.as_str(), field.value())).collect();
    let mut loader = loader::without_types();
    for (symbol, on) in &switches {
        loader.override_global(symbol, on, true);
    }
    for (field, value) in &fields {
        loader.override_global(field, value, true);
    }
    loader
        .override_global("histogram.guesses", &guesses[..], true)
        .override_global("histogram.bounds", &bounds[..], true)
        .override_global("clock.offset", &offset, true);
    for map in &MAPS {
        let entries = map.entries(settings.cpus, settings.signals);
        loader.map_max_entries(map.name, u32::try_from(entries).unwrap_or(u32::MAX));
    }
    loader.load(OBJECT)
}

/// The signals that programs know a switch of.
const SWITCHES: [&str; 3] = ["latency", "network_cpu", "softirq_wait"];
