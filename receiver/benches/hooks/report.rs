//! What is told of a round. `xtask/bench/src/hooks/round.rs` reads it.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::Serialize;
use undercurrent::{
    kernel::{
        Kernel,
        hooks::{self, Hook},
        object::Ownership,
        statistics::Runs,
    },
    options::Weight,
};

use crate::{
    baseline::{BESIDE, CLOCK_ALONE},
    other::Other,
    wire::Traffic,
};

/// What the product's programs do, and what the others beside them.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Handlers {
    /// Every signal's, for the node as a whole, beside empty programs.
    All,
    /// The signals that tell waits are off, so that no hook serves two; beside empty programs.
    WithoutWaits,
    /// Every signal's, by workload, beside empty programs.
    ByWorkload,
    /// The same without the signals that tell waits.
    ByWorkloadWithoutWaits,
    /// The same by cgroup v1, where sockets' owners are kept by programs.
    ByWorkloadByCpu,
    /// Every signal's, of one packet in four, which is what adaptive sampling begins with when packets come fast.
    Sampled,
    /// The same by workload.
    SampledByWorkload,
    /// By workload, beside the product's own programs for the node as a whole.
    Attribution,
    /// The same by cgroup v1, where sockets' owners are kept by programs.
    AttributionByCpu,
}

impl Handlers {
    /// Each of them.
    pub const ALL: [Self; 9] = [
        Self::All,
        Self::WithoutWaits,
        Self::ByWorkload,
        Self::ByWorkloadWithoutWaits,
        Self::ByWorkloadByCpu,
        Self::Sampled,
        Self::SampledByWorkload,
        Self::Attribution,
        Self::AttributionByCpu,
    ];

    /// How owners are found by the product's programs.
    pub const fn ownership(self) -> Option<Ownership> {
        match self {
            Self::All | Self::WithoutWaits | Self::Sampled => None,
            Self::ByWorkload | Self::ByWorkloadWithoutWaits | Self::SampledByWorkload | Self::Attribution => {
                Some(Ownership::Unified)
            }
            // No cgroup is made or removed meanwhile: the number means nothing.
            Self::ByWorkloadByCpu | Self::AttributionByCpu => Some(Ownership::Cpu(0)),
        }
    }

    /// Whether the signals that tell waits are on.
    pub const fn waits(self) -> bool {
        !matches!(self, Self::WithoutWaits | Self::ByWorkloadWithoutWaits)
    }

    /// How many packets stand for one that is measured.
    pub const fn weight(self) -> Weight {
        match self {
            Self::Sampled | Self::SampledByWorkload => Weight::at_least(4),
            _ => Weight::ONE,
        }
    }

    /// Whether some program beside another one runs under a kind of traffic.
    pub const fn hears(self, traffic: Traffic) -> bool {
        match traffic {
            Traffic::Sockets => matches!(self, Self::ByWorkloadByCpu),
            _ => true,
        }
    }
}

/// Which of the two programs on a hook was attached first, and so runs first.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The product's.
    ProductFirst,
    /// The other.
    OtherFirst,
}

impl Order {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ProductFirst, Self::OtherFirst];
}

/// One round.
#[derive(Serialize)]
pub struct Round {
    pub handlers: Handlers,
    pub order: Order,
    pub traffic: Traffic,
    /// Requests and replies.
    pub messages: u32,
    /// By symbol.
    pub programs: BTreeMap<String, Pair>,
}

/// What the kernel counted for the product's program and for the other on the same hook.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Pair {
    /// Whether the product's measures how long packets take.
    pub latency: bool,
    pub product: Counts,
    pub other: Counts,
}

/// Runs, and what they took.
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

/// The counts of both programs on each hook, until now.
pub fn counts(kernel: &Kernel, other: &Other) -> BTreeMap<String, Pair> {
    let mut counts: BTreeMap<String, Pair> = BTreeMap::new();
    for (symbol, runs) in kernel.runs().into_iter().flatten() {
        let pair = Pair { latency: measures_latency(&symbol), product: runs.into(), ..Pair::default() };
        counts.insert(symbol, pair);
    }
    for (symbol, runs) in other.runs() {
        counts.entry(symbol).or_default().other = runs.into();
    }
    // It is beside an empty program of another name.
    if let (Some(clock), Some(empty)) = (counts.get(CLOCK_ALONE).copied(), counts.get(BESIDE).copied()) {
        counts.insert(CLOCK_ALONE.to_owned(), Pair { latency: false, product: clock.other, other: empty.other });
    }
    counts
}

/// Whether a program is of a hook that packets pass on their way, in or out.
fn measures_latency(symbol: &str) -> bool {
    const WAY_OUT: [&Hook; 4] =
        [&hooks::TRANSMIT_SEND, &hooks::TRANSMIT_QUEUE, &hooks::TRANSMIT_START, &hooks::TRANSMIT_END];
    let of_way = hooks::SHARED.into_iter().filter(|hook| hook.reads_timestamps || WAY_OUT.contains(hook));
    let mut programs = of_way.flat_map(|hook| hook.alternates).flat_map(|alternate| alternate.programs);
    programs.any(|program| program.symbol == symbol)
}

/// What was counted from one reading to another, of programs that ran.
pub fn difference(before: BTreeMap<String, Pair>, mut after: BTreeMap<String, Pair>) -> BTreeMap<String, Pair> {
    for (symbol, pair) in &mut after {
        let earlier = before.get(symbol).copied().unwrap_or_default();
        *pair = Pair { product: pair.product.since(earlier.product), other: pair.other.since(earlier.other), ..*pair };
    }
    after.retain(|_, pair| pair.product.runs > 0 && pair.other.runs > 0);
    after
}
