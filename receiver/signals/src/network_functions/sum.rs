//! Sums of samples, before and after their CPU has a price.

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

/// Samples of a CPU without a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// The sum of the samples' weights.
    weight: u64,
    samples: u64,
    /// The sum of the squared weights.
    squares: u128,
}

impl Counted {
    /// Adds a sample.
    pub fn add(&mut self, weight: u64) {
        self.weight += weight;
        self.samples += 1;
        self.squares += u128::from(weight).pow(2);
    }
}

impl Sum {
    /// Adds samples with a price in nanoseconds. A price of 1 is exact.
    pub fn add(&mut self, counted: &Counted, price: f64) {
        self.nanoseconds += (counted.weight as f64 * price).round() as u64;
        self.samples += counted.samples;
        self.squares += (counted.squares as f64 * price.powi(2)).round() as u128;
    }
}
