//! The metrics of `energy`.

use crate::telemetry::{
    AttributeKey, Attributes, Data, Descriptor, Figure, FigureKind, Instrument, Joules, Microjoules, Point, UnixNanos,
    View,
};

/// `hw.id`, an attribute of the semantic conventions for hardware.
const ID: &str = "hw.id";
const TYPE: &str = "hw.type";
const DOMAIN: &str = "undercurrent.energy.domain";
const USE: &str = "undercurrent.energy.use";
const SOURCE: &str = "undercurrent.energy.source";
const BASIS: &str = "undercurrent.energy.basis";

const ZONE: AttributeKey = AttributeKey::open(ID, "the zone or the sensor, for example `package-0/dram`");

pub static HARDWARE: Descriptor = Descriptor {
    name: "hw.energy",
    unit: "J",
    description: "Measured energy of a part of the node. Zones such as `package-0/core` are parts of other zones.",
    instrument: Instrument::Counter,
    attributes: &[ZONE, AttributeKey::listed(TYPE, &["cpu", "memory"])],
    view: View::Section,
};

pub static PLATFORM: Descriptor = Descriptor {
    name: "hw.host.energy",
    unit: "J",
    description: "Measured energy of the whole platform.",
    instrument: Instrument::Counter,
    attributes: &[ZONE],
    view: View::Section,
};

pub static DIVIDED: Descriptor = Descriptor {
    name: NAME,
    unit: "J",
    description: "Energy of the node, divided over workloads by their CPU use. The idle part counts for the node.",
    instrument: Instrument::Counter,
    attributes: &[
        AttributeKey::derived(DOMAIN, || Domain::ALL.map(Domain::as_str).to_vec()),
        AttributeKey::derived(USE, || Use::ALL.map(Use::as_str).to_vec()),
        AttributeKey::derived(SOURCE, || Origin::ALL.map(Origin::as_str).to_vec()),
        AttributeKey::derived(BASIS, || Basis::ALL.map(Basis::as_str).to_vec()),
    ],
    view: View::Summary(&FIGURES),
};

const NAME: &str = "undercurrent.energy";
const LATENCY: &str = "undercurrent.network.receive.duration";
const BYTES: &str = "undercurrent.network.receive.io";
const READ: &[(&str, &str)] = &[("undercurrent.network.layer", "socket_read")];

/// The columns of the live table.
static FIGURES: [Figure; 6] = [
    Figure { heading: "power", spare: 0, metric: NAME, attributes: &[], kind: FigureKind::Rate("J") },
    Figure {
        heading: "network",
        spare: 0,
        metric: NAME,
        attributes: &[(USE, Use::Network.as_str())],
        kind: FigureKind::Rate("J"),
    },
    Figure {
        heading: "per GB received",
        spare: 2,
        metric: NAME,
        attributes: &[],
        kind: FigureKind::PerGigabyte("J", BYTES),
    },
    Figure {
        heading: "of one CPU",
        spare: 1,
        metric: "undercurrent.cpu.time",
        attributes: &[],
        kind: FigureKind::Share,
    },
    Figure {
        heading: "latency p50",
        spare: 4,
        metric: LATENCY,
        attributes: READ,
        kind: FigureKind::Quantile(0.5, "s"),
    },
    Figure {
        heading: "latency p99",
        spare: 3,
        metric: LATENCY,
        attributes: READ,
        kind: FigureKind::Quantile(0.99, "s"),
    },
];

/// A part of the node that is measured separately. The domains are disjoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// The processor packages.
    Cpu,
    /// Memory.
    Memory,
}

impl Domain {
    /// Both domains.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Memory];

    /// Returns the value of `undercurrent.energy.domain`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

/// The use of energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// Network events.
    Network,
    /// Other work.
    Compute,
    /// No work.
    Idle,
}

impl Use {
    /// Every use.
    pub const ALL: [Self; 3] = [Self::Network, Self::Compute, Self::Idle];

    /// Returns the value of `undercurrent.energy.use`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Compute => "compute",
            Self::Idle => "idle",
        }
    }
}

/// The kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// RAPL.
    Rapl,
    /// hwmon.
    Hwmon,
    /// The model.
    Model,
}

impl Origin {
    /// Every kind, the most exact first.
    pub const ALL: [Self; 3] = [Self::Rapl, Self::Hwmon, Self::Model];

    /// Returns the value of `undercurrent.energy.source`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rapl => "rapl",
            Self::Hwmon => "hwmon",
            Self::Model => "model",
        }
    }
}

/// The measure of CPU use that energy is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// Cycles of the processor, weighted for hyper-threads.
    Cycles,
    /// CPU time by the kernel's accounting.
    CpuTime,
}

impl Basis {
    /// Both measures, the more exact first.
    pub const ALL: [Self; 2] = [Self::Cycles, Self::CpuTime];

    /// Returns the value of `undercurrent.energy.basis`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::CpuTime => "cpu_time",
        }
    }
}

/// Returns the point of a meter. The type is `None` for a meter of the platform.
pub fn measured(id: &str, kind: Option<&'static str>, start: UnixNanos, energy: Microjoules) -> Point {
    let attributes = Attributes::new().with(ID, id.to_owned());
    let attributes = if let Some(kind) = kind { attributes.with(TYPE, kind) } else { attributes };
    Point { attributes, start, data: joules(energy) }
}

/// The key of a part of a domain's energy.
pub type Part = (Domain, Origin, Basis, Use);

/// Returns the point of a part of a domain's energy.
pub fn divided((domain, origin, basis, of): Part, start: UnixNanos, energy: Microjoules) -> Point {
    let attributes =
        Attributes::new().with(DOMAIN, domain.as_str()).with(USE, of.as_str()).with(SOURCE, origin.as_str());
    // The idle part is not divided.
    let attributes = if of == Use::Idle { attributes } else { attributes.with(BASIS, basis.as_str()) };
    Point { attributes, start, data: joules(energy) }
}

fn joules(energy: Microjoules) -> Data {
    Data::Double(Joules::from(energy).0)
}
