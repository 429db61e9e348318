//! Reads stacks from the ring and adds up their time by classification.

use std::{collections::HashMap, mem::size_of};

use undercurrent_ebpf::abi::sample::SampleHeader;
use zerocopy::FromBytes;

use super::classifier::{Classifier, Work};
use crate::kernel::ring::Ring;

/// The sum of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The time that the samples represent, in nanoseconds.
    pub nanoseconds: u64,
    /// The number of samples.
    pub samples: u64,
    /// The sum of the samples' squared times, in square nanoseconds.
    pub squares: u128,
}

/// The sums by work, and by CPU if the configuration requests it.
pub type Sums = HashMap<(Work, Option<u32>), Sum>;

/// The samples so far.
pub struct Collector {
    ring: Ring,
    /// Classifies the stacks.
    pub classifier: Classifier,
    per_cpu: bool,
    sums: Sums,
    unresolved: bool,
}

impl Collector {
    /// Returns a collector of the stacks in a ring.
    pub fn new(ring: Ring, classifier: Classifier, per_cpu: bool) -> Self {
        Self { ring, classifier, per_cpu, sums: HashMap::new(), unresolved: false }
    }

    /// Adds all stacks in the ring.
    pub fn drain(&mut self) {
        let Self { ring, classifier, per_cpu, sums, unresolved } = self;
        while ring.next(|record| add(record, classifier, *per_cpu, sums, unresolved)).is_some() {}
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

fn add(record: &[u8], classifier: &Classifier, per_cpu: bool, sums: &mut Sums, unresolved: &mut bool) {
    let Some((header, addresses)) = parse(record) else { return };
    let classified = classifier.classify(addresses);
    *unresolved |= classified.unresolved;
    if let Some(work) = classified.work {
        let sum = sums.entry((work, per_cpu.then_some(header.cpu))).or_default();
        sum.nanoseconds += header.time;
        sum.samples += 1;
        sum.squares += u128::from(header.time).pow(2);
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes as _;

    use super::{
        super::{classifier::functions, settings::Settings},
        *,
    };
    use crate::kernel::text::{Range, Text};

    #[test]
    fn each_sample_counts_with_its_time() {
        let settings = Settings::default();
        let index = functions(&settings).iter().position(|name| name == "net_rx_action").expect("a function");
        let range = Range { start: 4096, end: 4112, function: u32::try_from(index).expect("few functions") };
        let classifier = Classifier::new(&settings, Text { ranges: vec![range], vmlinux: (4096, 8192) });
        let (mut sums, mut unresolved) = (Sums::new(), false);
        let mut take = |words: &[u64], per_cpu| {
            add(words.as_bytes(), &classifier, per_cpu, &mut sums, &mut unresolved);
        };
        take(&[1_000, 0, 5_000, 4_100], false);
        take(&[20_000, 1, 4_096], false);
        take(&[300, 1, 4_096], true);
        // No network work, a stack without frames, and a truncated record.
        take(&[7, 0, 5_000], false);
        take(&[7, 0], false);
        take(&[7], false);
        let of = |cpu| sums.iter().find(|((_, of), _)| *of == cpu).map(|(_, sum)| *sum);
        assert_eq!(of(None), Some(Sum { nanoseconds: 21_000, samples: 2, squares: 401_000_000 }));
        assert_eq!(of(Some(1)), Some(Sum { nanoseconds: 300, samples: 1, squares: 90_000 }));
        assert_eq!((sums.len(), unresolved), (2, false));
    }
}
