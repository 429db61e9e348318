//! The figures of pairs.

use super::load::Figures;
use crate::statistics::Median;

/// Two runs, one after the other.
pub struct Pair {
    /// With the sidecar.
    pub with: Figures,
    /// The share of one CPU's time that the sidecar's process took.
    pub own: f64,
    /// Without it.
    pub without: Figures,
}

/// What the columns are.
pub fn head() -> String {
    "medians; in brackets 95% intervals of the median of the pairs' ratios, in percent; the smallest effect is half of the \
     interval; the process is what the sidecar takes of one CPU beside its programs\n\
     CONNECTIONS  PAIRS   REQUESTS/S   WITHOUT      RATE                      P99                        SMALLEST  PROCESS\n"
        .to_owned()
}

/// What came of so many connections at once.
pub fn row(connections: usize, pairs: &[Pair]) -> String {
    let median = |value: &dyn Fn(&Pair) -> f64| Median::of(pairs.iter().map(value).collect());
    let change = |of: &dyn Fn(&Figures) -> f64| median(&|pair| (of(&pair.with) / of(&pair.without) - 1.0) * 100.0);
    let (Some(with), Some(without), Some(own), Some(rate), Some(p99)) = (
        median(&|pair| pair.with.rate),
        median(&|pair| pair.without.rate),
        median(&|pair| pair.own * 100.0),
        change(&|figures| figures.rate),
        change(&|figures| figures.p99),
    ) else {
        return String::new();
    };
    let smallest = (rate.interval.1 - rate.interval.0) / 2.0;
    let cell =
        |change: &Median| format!("{:+.1}% [{:+.1}, {:+.1}]", change.value, change.interval.0, change.interval.1);
    format!(
        "{connections:>11} {:>6} {:>12.0} {:>9.0}      {:<25} {:<26} {smallest:>7.1}% {:>7.2}%\n",
        pairs.len(),
        with.value,
        without.value,
        cell(&rate),
        cell(&p99),
        own.value,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_compared_one_by_one() {
        let figures = |rate, p99| Figures { rate, p99 };
        // The machine is twice as fast in the second pair: the ratios are alike.
        let pairs = [
            Pair { with: figures(950.0, 0.011), own: 0.01, without: figures(1000.0, 0.010) },
            Pair { with: figures(1900.0, 0.022), own: 0.01, without: figures(2000.0, 0.020) },
        ];
        let row = row(50, &pairs);
        assert!(row.contains("-5.0% [-5.0, -5.0]") && row.contains("+10.0% [+10.0, +10.0]"), "{row}");
        assert!(row.ends_with(" 0.0%    1.00%\n"), "{row}");
    }

    #[test]
    fn nothing_is_said_of_no_pairs() {
        assert_eq!(row(1, &[]), "");
    }
}
