//! The result of a round. `xtask/bench/src/hooks/round.rs` parses it.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::Serialize;
use undercurrent::{
    cgroup::Ownership,
    kernel::{
        Kernel,
        hooks::{self, Hook},
        statistics::Runs,
    },
    options::Weight,
};

use crate::{
    baseline::{BESIDE, CLOCK_ALONE},
    other::Other,
    wire::Traffic,
};

/// The handlers of the sidecar's programs, and the programs to compare with.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Handlers {
    /// All signals for the node, compared with empty programs.
    All,
    /// All signals for the node except slow packets, compared with empty programs.
    WithoutSlowPackets,
    /// All signals except waits, so that no hook serves two signals; compared with empty programs.
    WithoutWaits,
    /// All signals by workload, compared with empty programs.
    ByWorkload,
    /// All signals except waits by workload, compared with empty programs.
    ByWorkloadWithoutWaits,
    /// All signals by workload on cgroup v1, where programs store the workloads of sockets.
    ByWorkloadByCpu,
    /// All signals of one packet in four, the first share of adaptive sampling at a high rate.
    Sampled,
    /// All signals of one packet in four by workload.
    SampledByWorkload,
    /// All signals by workload, compared with the sidecar's programs for the node.
    Attribution,
    /// All signals by workload on cgroup v1, compared with the sidecar's programs for the node.
    AttributionByCpu,
    /// CPU time by workload, with socket calls and samples; compared with empty programs.
    CpuTime,
    /// Counters of the processor by workload, with events of the kernel, and energy; compared with empty programs.
    Energy,
    /// As [`Handlers::Energy`], with cycles as the only counter.
    EnergyByCycles,
}

impl Handlers {
    /// All variants.
    pub const ALL: [Self; 13] = [
        Self::All,
        Self::WithoutSlowPackets,
        Self::WithoutWaits,
        Self::ByWorkload,
        Self::ByWorkloadWithoutWaits,
        Self::ByWorkloadByCpu,
        Self::Sampled,
        Self::SampledByWorkload,
        Self::Attribution,
        Self::AttributionByCpu,
        Self::CpuTime,
        Self::Energy,
        Self::EnergyByCycles,
    ];

    /// Returns the attribution method of the sidecar's programs.
    pub const fn ownership(self) -> Option<Ownership> {
        match self {
            Self::All | Self::WithoutSlowPackets | Self::WithoutWaits | Self::Sampled => None,
            Self::ByWorkload
            | Self::ByWorkloadWithoutWaits
            | Self::SampledByWorkload
            | Self::Attribution
            | Self::CpuTime
            | Self::Energy
            | Self::EnergyByCycles => Some(Ownership::Unified),
            // No cgroup is created or removed meanwhile, so the number has no effect.
            Self::ByWorkloadByCpu | Self::AttributionByCpu => Some(Ownership::Cpu(0)),
        }
    }

    /// Returns true if only CPU time, counters of the processor and energy are measured.
    pub const fn divides_energy(self) -> bool {
        matches!(self, Self::Energy | Self::EnergyByCycles)
    }

    /// Returns true if the signals of waits are enabled.
    pub const fn waits(self) -> bool {
        !matches!(self, Self::WithoutWaits | Self::ByWorkloadWithoutWaits)
    }

    /// Returns true if slow packets are selected. The limits of latency are those of histograms and waits alone.
    pub const fn selects_slow(self) -> bool {
        !matches!(self, Self::WithoutSlowPackets | Self::WithoutWaits | Self::ByWorkloadWithoutWaits)
    }

    /// Returns the number of packets that a measured packet represents.
    pub const fn weight(self) -> Weight {
        match self {
            Self::Sampled | Self::SampledByWorkload => Weight::at_least(4),
            _ => Weight::ONE,
        }
    }

    /// Returns true if the traffic triggers programs of the compared hooks.
    pub const fn hears(self, traffic: Traffic) -> bool {
        match traffic {
            Traffic::Sockets => matches!(self, Self::ByWorkloadByCpu),
            Traffic::Threads => matches!(self, Self::CpuTime) || self.divides_energy(),
            Traffic::Pauses => self.divides_energy(),
            _ => true,
        }
    }
}

/// The order of attachment, in which the kernel runs the two programs of a hook.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The sidecar's program runs first.
    ProductFirst,
    /// The other program runs first.
    OtherFirst,
}

impl Order {
    /// Both orders.
    pub const ALL: [Self; 2] = [Self::ProductFirst, Self::OtherFirst];
}

/// One round.
#[derive(Serialize)]
pub struct Round {
    pub handlers: Handlers,
    pub order: Order,
    pub traffic: Traffic,
    /// The number of requests and replies.
    pub messages: u32,
    /// Counts by symbol.
    pub programs: BTreeMap<String, Pair>,
}

/// The kernel's counts for the sidecar's program and for the other program on the hook.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Pair {
    /// True if the sidecar's program measures durations of packets.
    pub latency: bool,
    pub product: Counts,
    pub other: Counts,
}

/// The number of runs, and their duration.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Counts {
    pub runs: u64,
    pub nanoseconds: u64,
}

impl Counts {
    const fn since(self, before: Self) -> Self {
        Self { runs: self.runs - before.runs, nanoseconds: self.nanoseconds - before.nanoseconds }
    }
}

impl From<Runs> for Counts {
    fn from(runs: Runs) -> Self {
        Self { runs: runs.count, nanoseconds: runs.nanoseconds }
    }
}

/// Returns the counts of both programs on each hook so far.
pub fn counts(kernel: &Kernel, other: &Other) -> BTreeMap<String, Pair> {
    let mut counts: BTreeMap<String, Pair> = BTreeMap::new();
    for (symbol, runs) in kernel.runs().into_iter().flatten() {
        let pair = Pair { latency: measures_latency(&symbol), product: runs.into(), ..Pair::default() };
        counts.insert(symbol, pair);
    }
    for (symbol, runs) in other.runs() {
        counts.entry(symbol).or_default().other = runs.into();
    }
    // The other program on this hook is an empty program with a different name.
    if let (Some(clock), Some(empty)) = (counts.get(CLOCK_ALONE).copied(), counts.get(BESIDE).copied()) {
        counts.insert(CLOCK_ALONE.to_owned(), Pair { latency: false, product: clock.other, other: empty.other });
    }
    counts
}

/// Returns true if the program's hook is on the receive or transmit path.
fn measures_latency(symbol: &str) -> bool {
    const WAY_OUT: [&Hook; 4] =
        [&hooks::TRANSMIT_SEND, &hooks::TRANSMIT_QUEUE, &hooks::TRANSMIT_START, &hooks::TRANSMIT_END];
    let of_way = hooks::SHARED.into_iter().filter(|hook| hook.reads_timestamps || WAY_OUT.contains(hook));
    let mut programs = of_way.flat_map(|hook| hook.alternates).flat_map(|alternate| alternate.programs);
    programs.any(|program| program.symbol == symbol)
}

/// Returns the difference between two readings for programs that ran.
pub fn difference(before: BTreeMap<String, Pair>, mut after: BTreeMap<String, Pair>) -> BTreeMap<String, Pair> {
    for (symbol, pair) in &mut after {
        let earlier = before.get(symbol).copied().unwrap_or_default();
        *pair = Pair { product: pair.product.since(earlier.product), other: pair.other.since(earlier.other), ..*pair };
    }
    after.retain(|_, pair| pair.product.runs > 0 && pair.other.runs > 0);
    after
}
