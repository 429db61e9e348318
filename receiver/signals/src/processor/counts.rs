//! Growth of the processor's counters by workload.

use std::collections::BTreeMap;

use undercurrent_ebpf::abi::processor::{COUNTERS, Counter, INTERRUPTED, ProcessorCells, SHARED_CYCLES, WORDS};

use super::super::{
    divide::divide,
    slot_words::{SlotWords, entries},
};
use crate::{
    kernel::{Kernel, KernelError, maps::ByCpu, memory::PlannedMap},
    telemetry::UnixNanos,
    workloads::{Slot, Workloads},
};

/// Words by slot and shard.
pub static USE: PlannedMap = PlannedMap::new("PROCESSOR_USE", size_of::<[u64; WORDS]>(), entries);
/// The state of each CPU.
pub static CELLS: PlannedMap = PlannedMap::by_cpu::<ProcessorCells>("PROCESSOR", |sizing| sizing.cpus);
/// The sibling of each CPU.
pub static SIBLINGS: PlannedMap = PlannedMap::new("SIBLINGS", size_of::<u32>(), |sizing| sizing.cpus);

/// Counters, and last the cycles beside a busy sibling.
pub type Counts = [u64; COUNTERS + 1];

/// The map [`USE`].
pub struct Use(SlotWords);

impl Use {
    /// Maps the words into memory.
    ///
    /// # Errors
    /// If the kernel refuses the mapping.
    pub fn open(kernel: &Kernel) -> Result<Self, KernelError> {
        SlotWords::open(kernel, &USE, WORDS).map(Self)
    }

    /// Returns the counts of a slot since its start.
    pub fn counts(&self, slot: Slot) -> Counts {
        std::array::from_fn(|word| self.0.sum(slot, word))
    }

    /// Returns the time for which network softirqs interrupted the tasks of a slot, in nanoseconds.
    pub fn interrupted(&self, slot: Slot) -> u64 {
        self.0.sum(slot, INTERRUPTED)
    }

    /// Clears the words of a slot.
    pub fn clear(&self, slot: Slot) {
        self.0.clear(slot);
    }
}

/// The growth of counters since the previous reading.
pub struct Growth {
    /// Counts of each slot without softirqs.
    pub own: BTreeMap<Slot, Counts>,
    /// Cycles of the network softirqs of all CPUs, and those beside a busy sibling.
    pub softirqs: Counts,
    /// True if the kernel multiplexed a counter.
    pub scaled: bool,
    /// Readings that failed.
    pub failed: u64,
}

/// Reads the counters.
pub struct Reader {
    counts: Use,
    cells: ByCpu<ProcessorCells>,
    last: BTreeMap<Slot, (UnixNanos, Counts)>,
    softirqs: Counts,
    scaled: u64,
    failed: u64,
}

impl Reader {
    /// Opens the maps.
    ///
    /// # Errors
    /// If the kernel refuses a mapping.
    pub fn open(kernel: &Kernel) -> Result<Self, KernelError> {
        let (counts, cells) = (Use::open(kernel)?, kernel.by_cpu(&CELLS)?);
        Ok(Self { counts, cells, last: BTreeMap::new(), softirqs: Counts::default(), scaled: 0, failed: 0 })
    }

    /// Returns the growth since the previous call.
    pub fn advance(&mut self, workloads: &Workloads) -> Growth {
        let node = workloads.start(Slot::NODE).unwrap_or_default();
        let slots = std::iter::once((Slot::NODE, node)).chain(workloads.slots());
        let now: BTreeMap<_, _> = slots.map(|(slot, start)| (slot, (start, self.counts.counts(slot)))).collect();
        let before = |slot, start| match self.last.get(&slot) {
            Some((known, counts)) if *known == start => *counts,
            _ => Counts::default(),
        };
        let own = now.iter().map(|(slot, (start, counts))| (*slot, since(*counts, before(*slot, *start)))).collect();
        self.last = now;
        let (mut softirqs, mut scaled, mut failed) = (Counts::default(), 0, 0);
        let (cycles, shared) = (Counter::Cycles as usize, SHARED_CYCLES);
        self.cells.for_each(|_, cells| {
            softirqs[cycles] += cells.softirqs[0];
            softirqs[shared] += cells.softirqs[1];
            scaled += cells.scaled;
            failed += cells.failed;
        });
        let growth = Growth {
            own,
            softirqs: since(softirqs, self.softirqs),
            scaled: scaled > self.scaled,
            failed: failed.saturating_sub(self.failed),
        };
        (self.softirqs, self.scaled, self.failed) = (softirqs, scaled, failed);
        growth
    }

    /// Returns the state of each CPU.
    pub fn states(&self) -> Vec<(u32, ProcessorCells)> {
        let mut states = Vec::new();
        self.cells.for_each(|cpu, cells| states.push((u32::try_from(cpu).unwrap_or(u32::MAX), *cells)));
        states
    }

    /// Clears the words of a slot.
    pub fn clear(&self, slot: Slot) {
        self.counts.clear(slot);
    }
}

impl Growth {
    /// Returns the part of the softirqs' counts of each slot, in proportion to the time of the softirqs for its packets. Without
    /// such a time they count for the node.
    pub fn divided_softirqs(&self, times: &BTreeMap<Slot, u64>) -> BTreeMap<Slot, Counts> {
        let mut parts: BTreeMap<Slot, Counts> = BTreeMap::new();
        let weights: Vec<u64> = times.values().copied().collect();
        for (counter, count) in self.softirqs.into_iter().enumerate() {
            match divide(count, &weights) {
                Some(counts) => {
                    for (slot, count) in times.keys().zip(counts) {
                        parts.entry(*slot).or_default()[counter] = count;
                    }
                }
                None => parts.entry(Slot::NODE).or_default()[counter] = count,
            }
        }
        parts
    }
}

fn since(now: Counts, before: Counts) -> Counts {
    std::array::from_fn(|n| now[n].saturating_sub(before[n]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use undercurrent_ebpf::abi::processor::{Reading, busy, proportion};
    use zerocopy::FromZeros as _;

    use super::*;

    #[test]
    fn a_proportion_has_a_resolution_of_a_thousandth() {
        assert_eq!(proportion(3_000_000, 1, 2), 1_500_000);
        assert_eq!(proportion(1000, 3, 1), 3000);
        assert_eq!([proportion(7, 0, 9), proportion(7, 9, 0)], [0, 0]);
        // A CPU at 5 GHz for an hour.
        assert_eq!(proportion(18_000_000_000_000, 3_600_000_000_000, 3_600_000_000_000), 18_000_000_000_000);
    }

    /// Returns the counted growth of an event at a thousand events a second, of which the kernel counts this many milliseconds of each
    /// second, and true if it is scaled. Values have the form of `bpf_perf_event_value`; each second has ten readings and one tick.
    fn multiplexed(counted: u64) -> (u64, bool) {
        let (mut reading, mut value, mut sum, mut scaled) = (Reading::new_zeroed(), 5_000_000, 0, false);
        for second in 1..=11 {
            for _ in 0..10 {
                value += counted / 10;
                let (growth, is_scaled) = reading.grow(value);
                // The share is known from the second tick on.
                if second > 1 {
                    sum += growth;
                    scaled |= is_scaled;
                }
            }
            assert!(reading.tick(second * 1_000_000_000, second * counted * 1_000_000));
        }
        (sum, scaled)
    }

    #[test]
    fn counts_of_multiplexed_events_are_scaled_and_marked() {
        assert_eq!(multiplexed(1000), (10_000, false));
        for counted in [750, 500, 250, 100] {
            let (sum, scaled) = multiplexed(counted);
            assert!(scaled && sum.abs_diff(10_000) <= 150, "{sum} of 10000, counted for {counted} ms of each second");
        }
    }

    #[test]
    fn a_stopped_event_is_noticed_at_the_next_tick() {
        let mut reading = Reading::new_zeroed();
        let ticks = [(7, 7), (9, 9), (9, 9), (4, 4), (5, 5)].map(|(enabled, running)| reading.tick(enabled, running));
        assert_eq!(ticks, [true, true, false, true, true], "the new event starts at zero");
    }

    proptest! {
        /// A CPU that is busy in every other interval has the busy time of these intervals at any time.
        #[test]
        fn published_busy_times_are_exact(start in 0_u64..1 << 60, steps in proptest::collection::vec(0_u64..1 << 40, 1..50)) {
            let (mut published, mut now, mut time, mut is_busy) = (0, start, 0, false);
            for step in steps {
                prop_assert_eq!(busy::until(published, now + step), time + if is_busy { step } else { 0 });
                now += step;
                time = busy::until(published, now);
                is_busy = !is_busy;
                published = busy::publish(time, now, is_busy);
            }
        }
    }

    #[test]
    fn softirqs_move_to_the_receivers() {
        let growth = Growth { own: BTreeMap::new(), softirqs: [100, 10, 0, 3, 0], scaled: false, failed: 0 };
        let parts = growth.divided_softirqs(&BTreeMap::from([(Slot(2), 3), (Slot(3), 1)]));
        assert_eq!((parts[&Slot(2)], parts[&Slot(3)]), ([75, 8, 0, 2, 0], [25, 2, 0, 1, 0]));
        let node = growth.divided_softirqs(&BTreeMap::new());
        assert_eq!(node[&Slot::NODE], growth.softirqs);
    }
}
