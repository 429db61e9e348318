//! Counters of the processor by workload: words, by slot, then by shard, then by [`Word`].

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A counter of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// Cycles of the CPU while it is not halted.
    Cycles,
    /// Retired instructions.
    Instructions,
    /// References to the last-level cache.
    CacheReferences,
    /// Misses of the last-level cache.
    CacheMisses,
}

impl Counter {
    /// Every counter, each at its own index.
    pub const ALL: [Self; COUNTERS] = [Self::Cycles, Self::Instructions, Self::CacheReferences, Self::CacheMisses];

    /// Returns the bit of the counter in the global `processor.counters`.
    #[must_use]
    #[inline(always)]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The number of counters.
pub const COUNTERS: usize = 4;
/// The index of the cycles beside a busy sibling, after the counters.
pub const SHARED_CYCLES: usize = COUNTERS;
/// The index of the time in nanoseconds for which network softirqs interrupted a workload's tasks.
pub const INTERRUPTED: usize = COUNTERS + 1;
/// Words of a shard: one cache line, which CPUs with their own shard do not share.
pub const WORDS: usize = 8;

/// The share of a counter that the kernel does not multiplex.
pub const WHOLE: u64 = 1024;

/// The last reading of a counter on one CPU.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reading {
    /// The value.
    pub value: u64,
    /// Nanoseconds for which the event was enabled.
    pub enabled: u64,
    /// Nanoseconds for which the event was counted. It is less if the kernel multiplexes events.
    pub running: u64,
    /// The share of the time for which the event was counted between the last two ticks, in [`WHOLE`]s; zero before the first.
    pub share: u64,
}

impl Reading {
    /// Records a value. Returns its growth, scaled if the kernel multiplexes the event, and true if it is scaled. The first value has
    /// no growth.
    #[inline(always)]
    pub fn grow(&mut self, value: u64) -> (u64, bool) {
        // A tick may interrupt a softirq's program between its reading and its use.
        let growth = if self.value == 0 { 0 } else { value.saturating_sub(self.value) };
        self.value = value;
        if self.share == 0 || self.share == WHOLE {
            return (growth, false);
        }
        (proportion(growth, WHOLE, self.share), true)
    }

    /// Records the times of the event at a tick. Returns false if the event has been stopped since the last tick.
    #[inline(always)]
    pub fn tick(&mut self, enabled: u64, running: u64) -> bool {
        let is_stopped = self.enabled != 0 && self.enabled == enabled;
        let (all, counted) = (enabled.saturating_sub(self.enabled), running.saturating_sub(self.running));
        self.share = if all == counted { WHOLE } else { proportion(WHOLE, counted, all) };
        (self.enabled, self.running) = (enabled, running);
        !is_stopped
    }
}

/// The state of one CPU. Only programs that run there write it, and they do not interrupt each other: switches and softirqs. All
/// times are nanoseconds of the monotonic clock.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProcessorCells {
    /// The busy time, which a sibling reads; see [`busy`].
    pub published: u64,
    /// The time of the last reading; zero before the first.
    pub read: u64,
    /// The busy time of the sibling at the last reading.
    pub sibling: u64,
    /// True (1) while a network softirq runs.
    pub in_softirq: u64,
    /// The address of the cgroups (`css_set`) of the task that runs, [`UNKNOWN`] or [`IDLE`].
    pub running: u64,
    /// Cycles in network softirqs, and those beside a busy sibling.
    pub softirqs: [u64; 2],
    /// Intervals in which the kernel multiplexed a counter. Their growth is scaled.
    pub scaled: u64,
    /// Readings that failed.
    pub failed: u64,
    /// Ticks.
    pub ticks: u64,
    /// Readings at ticks of events that the kernel has stopped, because their CPU went offline.
    pub stopped: u64,
    /// The last reading of each counter.
    pub last: [Reading; COUNTERS],
}

/// The value of [`ProcessorCells::running`] before the first switch.
pub const UNKNOWN: u64 = 0;
/// The value of [`ProcessorCells::running`] while the CPU is idle.
pub const IDLE: u64 = 1;

/// The busy time of a CPU in one word, so that another CPU reads it atomically: the time so far if the CPU is idle; if it is busy,
/// the time so far minus the time of the last change.
pub mod busy {
    const BUSY: u64 = 1 << 63;
    const TIME: u64 = BUSY - 1;

    /// Returns the busy time until `now`.
    #[must_use]
    #[inline(always)]
    pub const fn until(published: u64, now: u64) -> u64 {
        let since = if published & BUSY != 0 { now } else { 0 };
        (published & TIME).wrapping_add(since) & TIME
    }

    /// Returns the word of a CPU with this busy time until `now`.
    #[must_use]
    #[inline(always)]
    pub const fn publish(time: u64, now: u64, is_busy: bool) -> u64 {
        if is_busy { BUSY | (time.wrapping_sub(now) & TIME) } else { time & TIME }
    }
}

/// Returns `amount * part / whole` with a resolution of 1/1024 of the share; zero for a `whole` of zero. The amount is below 2^50, and
/// `part` is a time below 2^44 ns, or five hours.
#[must_use]
#[inline(always)]
pub const fn proportion(amount: u64, part: u64, whole: u64) -> u64 {
    match (part << 10).checked_div(whole) {
        Some(share) => (amount >> 10) * share + (((amount & 1023) * share) >> 10),
        None => 0,
    }
}

const _: () = {
    assert!(INTERRUPTED < WORDS && WORDS.is_power_of_two());
    assert!(size_of::<Reading>() == 32);
    assert!(size_of::<ProcessorCells>() == (5 + 2 + 4) * 8 + 4 * 32);
};
