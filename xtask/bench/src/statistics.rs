//! Medians with confidence intervals.

/// A median with a confidence interval of at least 95%.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The sample's median.
    pub value: f64,
    /// Ends of the interval. Both are values of the sample.
    pub interval: (f64, f64),
}

/// Maximum probability that the interval misses the median.
const ERROR: f64 = 0.05;

impl Median {
    /// Returns the median of a sample; `None` for an empty sample.
    ///
    /// The interval is that of the sign test: the k-th smallest and the k-th largest value, with k from the binomial distribution. It
    /// requires only independent values. It is not defined for fewer than six values; the interval is then their range.
    pub fn new(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (count, last) = (values.len(), values.len().checked_sub(1)?);
        let trimmed = trimmed(count);
        Some(Self {
            value: f64::midpoint(values[last / 2], values[count / 2]),
            interval: (values[trimmed], values[last - trimmed]),
        })
    }

    /// Formats the interval for tables.
    pub fn bracketed(&self) -> String {
        format!("[{:.1}, {:.1}]", self.interval.0, self.interval.1)
    }
}

/// Returns the number of values outside the interval at each end of a sorted sample. The interval misses the median if at most this
/// number of values is on one side of the median; the probability for both sides together is at most [`ERROR`].
fn trimmed(count: usize) -> usize {
    // Probabilities that 0, 1, 2 ... values are below the median, as logarithms: they would underflow for large samples.
    let mut logarithm = -(count as f64) * std::f64::consts::LN_2;
    let mut tail = 0.0;
    for below in 0..count.div_ceil(2) {
        tail += logarithm.exp();
        if 2.0 * tail > ERROR {
            return below.saturating_sub(1);
        }
        logarithm += ((count - below) as f64).ln() - ((below + 1) as f64).ln();
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn medians_of_odd_and_even_samples() {
        let median = |values: &[f64]| Median::new(values.to_vec()).map(|median| median.value);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }

    /// Compares with tables of the sign test, which contain the rank of the lower end, counted from one.
    #[test]
    fn intervals_have_the_ranks_of_published_tables() {
        let tabled =
            [(5, 1), (6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (15, 4), (20, 6), (30, 10), (50, 18), (100, 40)];
        for (count, rank) in tabled {
            assert_eq!(trimmed(count) + 1, rank, "{count} values");
        }
        let interval = Median::new((1..=20).map(f64::from).collect()).unwrap().interval;
        assert_eq!(interval, (6.0, 15.0));
    }

    #[test]
    fn large_samples_agree_with_the_normal_approximation() {
        // The normal approximation: (n - 1.96 sqrt(n)) / 2.
        assert!((trimmed(10_000) as f64 - 4_902.0).abs() <= 1.0, "{}", trimmed(10_000));
    }

    #[test]
    fn an_outlier_moves_neither_the_median_nor_the_interval_far() {
        let mut values: Vec<f64> = (0..30).map(|value| f64::from(value % 3)).collect();
        values[0] = 1e9;
        let median = Median::new(values).unwrap();
        assert_eq!(median.value, 1.0);
        assert!(median.interval.1 <= 2.0);
    }

    proptest! {
        #[test]
        fn the_median_lies_in_its_interval_and_the_interval_in_the_sample(
            values in prop::collection::vec(-1e6f64..1e6, 1..400),
        ) {
            let median = Median::new(values.clone()).unwrap();
            let (low, high) = median.interval;
            prop_assert!(low <= median.value && median.value <= high);
            prop_assert!(values.contains(&low) && values.contains(&high));
        }

        #[test]
        fn the_median_moves_and_scales_with_its_sample(
            values in prop::collection::vec(-1000i32..1000, 1..100), shift in -1000i32..1000,
        ) {
            let median = |by: i32| Median::new(values.iter().map(|value| f64::from(value + by)).collect()).unwrap();
            let (plain, shifted) = (median(0), median(shift));
            prop_assert_eq!(plain.value + f64::from(shift), shifted.value);
            prop_assert_eq!(plain.interval.0 + f64::from(shift), shifted.interval.0);
        }
    }
}
