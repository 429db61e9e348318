//! Base-2 exponential histograms of durations.

use std::time::Duration;

use undercurrent_ebpf::abi::histogram::{MAX_EXPONENT, MIN_EXPONENT};

use super::{Exemplar, Scale};

const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;

/// A histogram of durations in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct ExponentialHistogram {
    /// The scale of the OpenTelemetry data model.
    pub scale: i32,
    /// Number of measurements of at most `zero_threshold`.
    pub zero_count: u64,
    /// Upper bound of the zero bucket, in seconds.
    pub zero_threshold: f64,
    /// The OpenTelemetry index of the first bucket.
    pub offset: i32,
    /// Number of measurements in each bucket.
    pub buckets: Vec<u64>,
    /// Sum of all measurements, in seconds.
    pub sum: f64,
    /// Single measurements with their spans, in the order of time. They are exported once.
    pub exemplars: Vec<Exemplar>,
}

impl ExponentialHistogram {
    /// Returns the histogram of a cell's buckets, without empty buckets at either end.
    #[must_use]
    pub fn from_slots(scale: Scale, slots: &[u64], sum_nanoseconds: u64) -> Self {
        let (zero_count, rest) = slots.split_first().map_or((0, slots), |(zero, rest)| (*zero, rest));
        let first = rest.iter().position(|count| *count != 0).unwrap_or(0);
        let end = rest.iter().rposition(|count| *count != 0).map_or(first, |last| last + 1);
        Self {
            scale: i32::from(scale.get()),
            zero_count,
            zero_threshold: f64::from(MIN_EXPONENT).exp2(),
            offset: scale.first_index() + i32::try_from(first).unwrap_or(0),
            buckets: rest[first..end].to_vec(),
            sum: sum_nanoseconds as f64 / f64::from(NANOSECONDS_PER_SECOND),
            exemplars: Vec::new(),
        }
    }

    /// Returns the histogram of one duration of any length.
    #[must_use]
    pub fn from_duration(scale: Scale, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        if nanoseconds <= scale.boundary(scale.first_index()) {
            return Self::from_slots(scale, &[1], nanoseconds);
        }
        let estimate = (duration.as_secs_f64().log2() * f64::from(1 << scale.get())).floor() as i32;
        // The logarithm may be on the wrong side of a boundary. Upper bounds are inclusive.
        let is_above = |index: &i32| nanoseconds > scale.boundary(*index);
        let offset = (estimate - 1..=estimate + 1).rev().find(is_above).unwrap_or(estimate - 1);
        Self { offset, buckets: vec![1], ..Self::from_slots(scale, &[], nanoseconds) }
    }

    /// Returns the number of measurements.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.zero_count + self.buckets.iter().sum::<u64>()
    }

    /// Returns the measurements since an earlier state of this cumulative histogram. Returns all measurements if the
    /// scale differs or a count decreased.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let shift = i64::from(earlier.offset) - i64::from(self.offset);
        let before = |position: usize| {
            let index = i64::try_from(position).ok().and_then(|position| usize::try_from(position - shift).ok());
            index.and_then(|index| earlier.buckets.get(index)).copied().unwrap_or(0)
        };
        let buckets: Option<Vec<u64>> =
            self.buckets.iter().enumerate().map(|(position, count)| count.checked_sub(before(position))).collect();
        let zero_count = self.zero_count.checked_sub(earlier.zero_count);
        match (buckets, zero_count) {
            (Some(buckets), Some(zero_count)) if self.scale == earlier.scale => {
                let difference = Self { zero_count, buckets, sum: self.sum - earlier.sum, ..self.clone() };
                let covered = difference.count().checked_add(earlier.count()) == Some(self.count());
                if covered { difference } else { self.clone() }
            }
            _ => self.clone(),
        }
    }

    /// Adds the measurements of another histogram. Both histograms must have equal scales.
    pub fn add(&mut self, other: &Self) {
        let offset = self.offset.min(other.offset);
        let end = |histogram: &Self| histogram.offset + i32::try_from(histogram.buckets.len()).unwrap_or(0);
        let buckets = usize::try_from(end(self).max(end(other)) - offset).unwrap_or(0);
        let mut sum = vec![0; buckets];
        for histogram in [&*self, other] {
            let first = usize::try_from(histogram.offset - offset).unwrap_or(0);
            sum[first..].iter_mut().zip(&histogram.buckets).for_each(|(sum, count)| *sum += count);
        }
        (self.offset, self.buckets) = (offset, sum);
        self.zero_count += other.zero_count;
        self.sum += other.sum;
    }

    /// Returns the bounds of [`Self::by_powers_of_two`] in seconds. They are bounds of every scale that eBPF programs use.
    pub fn powers_of_two() -> impl Iterator<Item = f64> {
        (MIN_EXPONENT..=MAX_EXPONENT).map(|exponent| f64::from(exponent).exp2())
    }

    /// Returns the number of measurements up to each bound of [`Self::powers_of_two`] and above the bound before it, and then the
    /// number above the last bound. The counts are exact, because each bucket lies between two of the bounds.
    #[must_use]
    pub fn by_powers_of_two(&self) -> Vec<u64> {
        let last = usize::try_from(MAX_EXPONENT - MIN_EXPONENT).unwrap_or(0) + 1;
        let mut counts = vec![0; last + 1];
        counts[0] = self.zero_count;
        for (index, count) in (self.offset..).zip(&self.buckets) {
            let exponent = (index >> self.scale) + 1;
            let position = usize::try_from(exponent - MIN_EXPONENT).unwrap_or(0).min(last);
            counts[position] += count;
        }
        counts
    }

    /// Returns the upper bound, in seconds, of the bucket at a position in `buckets`.
    #[must_use]
    pub fn upper_bound(&self, position: usize) -> f64 {
        let index = self.offset + i32::try_from(position).unwrap_or(i32::MAX - 1) + 1;
        (f64::from(index) / f64::from(self.scale).exp2()).exp2()
    }

    /// Returns the upper bound, in seconds, of the bucket that holds the given quantile. Returns `None` for an empty
    /// histogram.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((quantile * count as f64).ceil() as u64).clamp(1, count);
        let mut seen = self.zero_count;
        if seen >= rank {
            return Some(self.zero_threshold);
        }
        self.buckets
            .iter()
            .position(|bucket| {
                seen += bucket;
                seen >= rank
            })
            .map(|position| self.upper_bound(position))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram(scale: i32, offset: i32, zero_count: u64, buckets: Vec<u64>) -> ExponentialHistogram {
        ExponentialHistogram {
            scale,
            zero_count,
            zero_threshold: (-24_f64).exp2(),
            offset,
            buckets,
            sum: 0.0,
            exemplars: Vec::new(),
        }
    }

    /// Returns the counts by index, without empty buckets.
    fn counts(histogram: &ExponentialHistogram) -> Vec<(i32, u64)> {
        (histogram.offset..).zip(histogram.buckets.iter().copied()).filter(|(_, count)| *count > 0).collect()
    }

    proptest! {
        #[test]
        fn a_difference_is_what_was_added(
            before in prop::collection::vec(0..1000_u64, 60),
            added in prop::collection::vec(prop_oneof![Just(0), 0..1000_u64], 60),
        ) {
            let scale = Scale::new(1).ok_or_else(|| TestCaseError::fail("scale"))?;
            let after: Vec<u64> = before.iter().zip(&added).map(|(before, added)| before + added).collect();
            let cell = |slots: &[u64]| ExponentialHistogram::from_slots(scale, slots, slots.iter().sum());
            let difference = cell(&after).since(&cell(&before));
            prop_assert_eq!(counts(&difference), counts(&cell(&added)));
            prop_assert_eq!(difference.zero_count, added[0]);
            prop_assert_eq!(difference.count(), added.iter().sum::<u64>());
            prop_assert_eq!(difference.quantile(1.0), cell(&added).quantile(1.0));
            let mut together = cell(&added);
            together.add(&cell(&before));
            prop_assert_eq!(counts(&together), counts(&cell(&after)));
            prop_assert_eq!(together.count(), cell(&after).count());
        }
    }

    proptest! {
        #[test]
        fn counts_up_to_powers_of_two_are_exact(scale in 0..4_u8, slots in prop::collection::vec(0..1000_u64, 1..250)) {
            let scale = Scale::new(scale).ok_or_else(|| TestCaseError::fail("scale"))?;
            let histogram = ExponentialHistogram::from_slots(scale, &slots[..slots.len().min(scale.buckets())], 0);
            let counts = histogram.by_powers_of_two();
            prop_assert_eq!(counts.iter().sum::<u64>(), histogram.count());
            for (position, bound) in ExponentialHistogram::powers_of_two().enumerate() {
                let below = |(position, _): &(usize, &u64)| histogram.upper_bound(*position) <= bound * (1.0 + 1e-9);
                let expected: u64 = histogram.buckets.iter().enumerate().filter(below).map(|(_, count)| *count).sum();
                prop_assert_eq!(counts[..=position].iter().sum::<u64>(), histogram.zero_count + expected);
            }
        }
    }

    #[test]
    fn a_duration_is_in_the_bucket_of_the_ebpf_programs() {
        let scale = Scale::new(2).expect("a scale");
        let bounds = scale.bounds();
        for (slot, bound) in bounds[..scale.buckets() - 1].iter().enumerate() {
            for (slot, nanoseconds) in [(slot, *bound), (slot + 1, bound + 1)] {
                let mut slots = vec![0; scale.buckets()];
                slots[slot] = 1;
                let expected = ExponentialHistogram::from_slots(scale, &slots, nanoseconds);
                let measured = ExponentialHistogram::from_duration(scale, Duration::from_nanos(nanoseconds));
                // An empty list of buckets has no offset.
                let offset = if slot == 0 { measured.offset } else { expected.offset };
                assert_eq!(measured, ExponentialHistogram { offset, ..expected }, "{nanoseconds} ns");
            }
        }
        let minutes = ExponentialHistogram::from_duration(scale, Duration::from_secs(300));
        assert!((256.0..=384.0).contains(&minutes.upper_bound(0)), "{minutes:?}");
    }

    #[test]
    fn an_incompatible_earlier_state_counts_as_empty() {
        let now = histogram(2, -50, 1, vec![3, 4]);
        for earlier in [
            histogram(1, -50, 1, vec![3]),
            histogram(2, -50, 2, vec![3]),
            histogram(2, -50, 1, vec![4]),
            histogram(2, -51, 1, vec![1, 3]),
        ] {
            assert_eq!(now.since(&earlier), now, "{earlier:?}");
        }
        assert_eq!(now.since(&now).count(), 0);
    }
}
