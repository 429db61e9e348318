//! Formats the results of pairs of runs.

use super::load::Figures;
use crate::statistics::Median;

/// Two consecutive runs.
pub struct Pair {
    /// Results with the sidecar.
    pub with: Figures,
    /// CPU time of the sidecar's process as a share of one CPU.
    pub own: f64,
    /// Results without the sidecar.
    pub without: Figures,
}

/// Returns the header of the table.
pub fn head() -> String {
    "medians; in brackets 95% intervals of the median of the pairs' ratios, in percent; the smallest effect is half of the \
     interval; PROCESS is the sidecar's share of one CPU without its programs\n\
     CONNECTIONS  PAIRS   REQUESTS/S   WITHOUT      RATE                      P99                        SMALLEST  PROCESS\n"
        .to_owned()
}

/// Returns the row for a number of connections.
pub fn row(connections: usize, pairs: &[Pair]) -> String {
    let median = |value: &dyn Fn(&Pair) -> f64| Median::new(pairs.iter().map(value).collect());
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
    fn ratios_are_computed_for_each_pair() {
        let figures = |rate, p99| Figures { rate, p99 };
        // The machine is twice as fast in the second pair, so the ratios are equal.
        let pairs = [
            Pair { with: figures(950.0, 0.011), own: 0.01, without: figures(1000.0, 0.010) },
            Pair { with: figures(1900.0, 0.022), own: 0.01, without: figures(2000.0, 0.020) },
        ];
        let row = row(50, &pairs);
        assert!(row.contains("-5.0% [-5.0, -5.0]") && row.contains("+10.0% [+10.0, +10.0]"), "{row}");
        assert!(row.ends_with(" 0.0%    1.00%\n"), "{row}");
    }

    #[test]
    fn no_pairs_give_no_row() {
        assert_eq!(row(1, &[]), "");
    }
}
