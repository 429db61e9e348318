//! Division of an amount into whole parts by largest remainder.

use std::cmp::Reverse;

/// Divides an amount in proportion to weights, by the method of the largest remainder: each part is rounded down, and the parts
/// with the largest remainders get one more. The parts add up to the amount exactly. Returns `None` if all weights are zero.
pub fn divide(amount: u64, weights: &[u64]) -> Option<Vec<u64>> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return None;
    }
    let share = |weight: &u64| u128::from(amount) * u128::from(*weight);
    // A part does not exceed the amount.
    let mut parts: Vec<u64> = weights.iter().map(|weight| (share(weight) / sum) as u64).collect();
    let left = amount - parts.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&n| (Reverse(share(&weights[n]) % sum), n));
    order.iter().take(left as usize).for_each(|&n| parts[n] += 1);
    Some(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_remainders_are_rounded_up() {
        assert_eq!(divide(10, &[1, 1, 1]), Some(vec![4, 3, 3]));
        assert_eq!(divide(10, &[2, 1]), Some(vec![7, 3]));
        assert_eq!(divide(100, &[0, 3, 1]), Some(vec![0, 75, 25]));
        assert_eq!(divide(0, &[1]), Some(vec![0]));
        assert_eq!(divide(5, &[0, 0]), None);
        assert_eq!(divide(5, &[]), None);
        assert_eq!(divide(u64::MAX, &[u64::MAX, u64::MAX]), Some(vec![u64::MAX / 2 + 1, u64::MAX / 2]));
    }

    proptest! {
        #[test]
        fn parts_add_up_and_are_proportional(
            amount: u64, weights in proptest::collection::vec(any::<u64>(), 1..200)
        ) {
            prop_assume!(weights.iter().any(|weight| *weight > 0));
            let parts = divide(amount, &weights).unwrap();
            prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(amount));
            let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
            for (part, weight) in parts.iter().zip(&weights) {
                let exact = u128::from(amount) * u128::from(*weight) / sum;
                prop_assert!((exact..=exact + 1).contains(&u128::from(*part)));
                prop_assert!(*weight > 0 || *part == 0);
            }
        }
    }
}
