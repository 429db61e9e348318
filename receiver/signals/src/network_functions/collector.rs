//! Reads stacks from the ring and adds up their time by classification.
//!
//! The weights of new samples are summed by CPU. At a snapshot, the price of each CPU converts them to times. So all times are sums of
//! rounded nanoseconds: they never fall, and the functions of an event add up to it exactly.

use std::{
    collections::{BTreeMap, HashMap},
    mem::size_of,
};

use undercurrent_ebpf::abi::sample::SampleHeader;
use zerocopy::FromBytes;

use super::{
    charges::{Charge, Charges},
    classifier::{Classifier, Work},
    sum::{Counted, Sum},
};
use crate::{kernel::ring::Ring, workloads::Slot};

/// The sums by work, and by CPU if the configuration requests it.
pub type Sums = HashMap<(Work, Option<u32>), Sum>;

/// The samples so far.
pub struct Collector {
    ring: Ring,
    /// Classifies the stacks.
    pub classifier: Classifier,
    per_cpu: bool,
    /// Samples since the last call of [`Self::settle`], and those of CPUs without a price.
    pending: Pending,
    sums: Sums,
    charges: Charges,
    unresolved: bool,
}

/// Samples by CPU.
#[derive(Default)]
struct Pending {
    work: PendingWork,
    charges: BTreeMap<(Charge, u32), Counted>,
}

type PendingWork = HashMap<(Work, u32), Counted>;

impl Collector {
    /// Returns a collector of the stacks in a ring.
    pub fn new(ring: Ring, classifier: Classifier, per_cpu: bool) -> Self {
        Self {
            ring,
            classifier,
            per_cpu,
            pending: Pending::default(),
            sums: HashMap::new(),
            charges: Charges::default(),
            unresolved: false,
        }
    }

    /// Adds all stacks in the ring.
    pub fn drain(&mut self) {
        let Self { ring, classifier, pending, unresolved, .. } = self;
        while ring.next(|record| add(record, classifier, pending, unresolved)).is_some() {}
    }

    /// Converts the weights of samples to times, by the price of each CPU. Samples of a CPU without a price wait.
    pub fn settle(&mut self, price: impl Fn(u32) -> Option<f64>) {
        self.charges.settle(&mut self.pending.charges, &price);
        settle(&mut self.pending.work, &mut self.sums, self.per_cpu, price);
    }

    /// Returns the times by slot.
    pub const fn charges(&self) -> &Charges {
        &self.charges
    }

    /// Removes the times of a slot.
    pub fn forget(&mut self, slot: Slot) {
        self.pending.charges.retain(|(charge, _), _| charge.slot() != slot);
        self.charges.forget(slot);
    }

    /// Returns the sums.
    pub const fn sums(&self) -> &Sums {
        &self.sums
    }

    /// Returns true if a stack since the last call had a frame in an unknown function outside of vmlinux.
    pub const fn take_unresolved(&mut self) -> bool {
        std::mem::replace(&mut self.unresolved, false)
    }
}

/// Returns the header and the addresses of a record, the innermost frame first; `None` if the record is too short.
pub fn parse(record: &[u8]) -> Option<(SampleHeader, impl DoubleEndedIterator<Item = u64> + Clone)> {
    let (header, frames) = SampleHeader::read_from_prefix(record).ok()?;
    Some((header, frames.chunks_exact(size_of::<u64>()).filter_map(|frame| u64::read_from_bytes(frame).ok())))
}

fn add(record: &[u8], classifier: &Classifier, pending: &mut Pending, unresolved: &mut bool) {
    let Some((header, addresses)) = parse(record) else { return };
    let classified = classifier.classify(addresses);
    *unresolved |= classified.unresolved;
    if let Some(work) = classified.work {
        pending.work.entry((work, header.cpu)).or_default().add(header.weight);
        for charge in Charge::of(work.event, &header) {
            pending.charges.entry((charge, header.cpu)).or_default().add(header.weight);
        }
    }
}

fn settle(pending: &mut PendingWork, sums: &mut Sums, per_cpu: bool, price: impl Fn(u32) -> Option<f64>) {
    pending.retain(|(work, cpu), counted| {
        let Some(price) = price(*cpu) else { return true };
        sums.entry((*work, per_cpu.then_some(*cpu))).or_default().add(counted, price);
        false
    });
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes as _;

    use super::{
        super::{classifier::functions, settings::Settings},
        *,
    };
    use crate::kernel::text::{Range, Text};

    /// Returns a classifier of two functions with one event and class.
    fn classifier() -> Classifier {
        let settings = Settings::default();
        let index = functions(&settings).iter().position(|name| name == "net_rx_action").expect("a function");
        let range = Range { start: 4096, end: 4112, function: u32::try_from(index).expect("few functions") };
        Classifier::new(&settings, Text { ranges: vec![range], vmlinux: (4096, 8192) })
    }

    fn pending(records: &[&[u64]]) -> PendingWork {
        let (classifier, mut pending, mut unresolved) = (classifier(), Pending::default(), false);
        records.iter().for_each(|words| add(words.as_bytes(), &classifier, &mut pending, &mut unresolved));
        assert!(!unresolved);
        pending.work
    }

    fn sum(sums: &Sums, cpu: Option<u32>) -> Option<Sum> {
        sums.iter().find(|((_, of), _)| *of == cpu).map(|(_, sum)| *sum)
    }

    /// Samples of CPUs 0 and 1, no network work, a stack without frames, and a truncated record.
    const RECORDS: [&[u64]; 6] =
        [&[1_000, 0, 5_000, 4_100], &[20_000, 1, 4_096], &[300, 1, 4_096], &[7, 0, 5_000], &[7, 0], &[7]];

    #[test]
    fn each_sample_of_a_timer_counts_with_its_time() {
        let all = Sum { nanoseconds: 21_300, samples: 3, squares: 401_090_000 };
        let of_cpu = Sum { nanoseconds: 20_300, samples: 2, squares: 400_090_000 };
        for (per_cpu, cpu, expected, count) in [(false, None, all, 1), (true, Some(1), of_cpu, 2)] {
            let (mut pending, mut sums) = (pending(&RECORDS), Sums::new());
            settle(&mut pending, &mut sums, per_cpu, |_| Some(1.0));
            assert_eq!((sum(&sums, cpu), sums.len(), pending.len()), (Some(expected), count, 0));
        }
    }

    #[test]
    fn samples_of_a_counter_wait_for_the_price_of_their_cpu() {
        let (mut pending, mut sums) = (pending(&RECORDS), Sums::new());
        let mut settle_at = |prices: [Option<f64>; 2], sums: &mut Sums| {
            settle(&mut pending, sums, false, |cpu| prices[cpu as usize]);
            pending.len()
        };
        assert_eq!(settle_at([None, None], &mut sums), 2);
        assert!(sums.is_empty());
        assert_eq!(settle_at([None, Some(0.25)], &mut sums), 1);
        assert_eq!(sum(&sums, None), Some(Sum { nanoseconds: 5_075, samples: 2, squares: 25_005_625 }));
        assert_eq!(settle_at([Some(0.5), Some(9.0)], &mut sums), 0);
        assert_eq!(sum(&sums, None), Some(Sum { nanoseconds: 5_575, samples: 3, squares: 25_255_625 }));
    }
}
