//! The totals of an edge.

use undercurrent_ebpf::abi::peers::{AMOUNTS, Amount};

use crate::telemetry::{ExponentialHistogram, Scale};

/// Cumulative amounts and durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    amounts: [u64; AMOUNTS],
    /// Sum of the durations in nanoseconds.
    sum: u64,
    buckets: Vec<u64>,
}

impl Totals {
    /// Returns totals of zero.
    pub fn zero(scale: Scale) -> Self {
        Self { amounts: [0; AMOUNTS], sum: 0, buckets: vec![0; scale.buckets()] }
    }

    /// Returns the totals of the words of an edge: its amounts, the sum and the buckets.
    pub fn of(words: impl IntoIterator<Item = u64>, scale: Scale) -> Self {
        let mut words = words.into_iter();
        let mut totals = Self::zero(scale);
        let before = totals.amounts.iter_mut().chain([&mut totals.sum]).chain(&mut totals.buckets);
        before.zip(&mut words).for_each(|(total, word)| *total = word);
        totals
    }

    /// Returns the growth since earlier totals.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut growth = self.clone();
        growth.combine(earlier, u64::wrapping_sub);
        growth
    }

    /// Adds other totals.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, u64::wrapping_add);
    }

    fn combine(&mut self, other: &Self, by: fn(u64, u64) -> u64) {
        let own = self.amounts.iter_mut().chain([&mut self.sum]).chain(&mut self.buckets);
        let others = other.amounts.iter().chain([&other.sum]).chain(&other.buckets);
        own.zip(others).for_each(|(own, other)| *own = by(*own, *other));
    }

    /// Returns true if nothing was counted.
    pub fn is_zero(&self) -> bool {
        self.amounts.iter().chain(&self.buckets).all(|count| *count == 0)
    }

    /// Returns an amount.
    pub const fn amount(&self, of: Amount) -> u64 {
        self.amounts[of as usize]
    }

    /// Returns the number of transactions.
    pub fn transactions(&self) -> u64 {
        self.amount(Amount::Untimed) + self.buckets.iter().sum::<u64>()
    }

    /// Returns true if a transaction has a duration.
    pub fn has_durations(&self) -> bool {
        self.buckets.iter().any(|count| *count > 0)
    }

    /// Returns the durations.
    pub fn durations(&self, scale: Scale) -> ExponentialHistogram {
        ExponentialHistogram::from_slots(scale, &self.buckets, self.sum)
    }
}
