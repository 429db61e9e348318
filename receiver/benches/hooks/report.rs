//! What is told of a round. `xtask/src/bench/hooks/round.rs` reads it.

use std::collections::BTreeMap;

use serde::Serialize;
use undercurrent::kernel::{Kernel, statistics::Runs};

use crate::{baseline::Baseline, wire::Traffic};

/// Which of the handlers that share hooks are on.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Handlers {
    /// Every signal's.
    All,
    /// `softirq_wait` is off, so that `softirq_entry` serves one signal of two.
    WithoutSoftirqWait,
}

impl Handlers {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::All, Self::WithoutSoftirqWait];
}

/// Which of the two programs on a hook was attached first, and so runs first.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The product's.
    ProductFirst,
    /// The empty one.
    EmptyFirst,
}

impl Order {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ProductFirst, Self::EmptyFirst];
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

/// What the kernel counted for the product's program and for the empty one on the same hook.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Pair {
    pub product: Counts,
    pub empty: Counts,
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
pub fn counts(kernel: &Kernel, baseline: &Baseline) -> BTreeMap<String, Pair> {
    let mut counts: BTreeMap<String, Pair> = BTreeMap::new();
    for (symbol, runs) in kernel.runs() {
        counts.entry(symbol.to_owned()).or_default().product = runs.into();
    }
    for (symbol, runs) in baseline.runs() {
        counts.entry(symbol.to_owned()).or_default().empty = runs.into();
    }
    counts
}

/// What was counted from one reading to another, of programs that ran.
pub fn difference(before: BTreeMap<String, Pair>, mut after: BTreeMap<String, Pair>) -> BTreeMap<String, Pair> {
    for (symbol, pair) in &mut after {
        let earlier = before.get(symbol).copied().unwrap_or_default();
        *pair = Pair { product: pair.product.since(earlier.product), empty: pair.empty.since(earlier.empty) };
    }
    after.retain(|_, pair| pair.product.runs > 0 && pair.empty.runs > 0);
    after
}
