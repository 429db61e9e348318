//! Measured errors of tests, one on each line of a results file.

use std::{ops::RangeInclusive, str::FromStr};

/// The error of a metric in one test.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub metric: String,
    pub test: String,
    /// The value that the sidecar exported.
    pub value: f64,
    /// The true value, or its bounds.
    pub truth: RangeInclusive<f64>,
    /// Release of the kernel.
    pub kernel: String,
    /// Day of the test in UTC.
    pub date: String,
}

/// Returns the distance between a value and its bounds: zero within the bounds, negative below.
pub fn error(value: f64, truth: &RangeInclusive<f64>) -> f64 {
    value - value.clamp(*truth.start(), *truth.end())
}

impl Measured {
    /// Returns the distance between the value and the truth.
    pub fn error(&self) -> f64 {
        error(self.value, &self.truth)
    }

    /// Returns the error as a share of the nearest true value.
    pub fn relative(&self) -> f64 {
        let nearest = self.value.clamp(*self.truth.start(), *self.truth.end());
        if self.error() == 0.0 { 0.0 } else { self.error() / nearest.abs() }
    }

    /// Returns the line for a results file.
    pub fn line(&self) -> String {
        let Self { metric, test, value, truth, kernel, date } = self;
        format!("{metric}\t{test}\t{value}\t{}\t{}\t{kernel}\t{date}", truth.start(), truth.end())
    }
}

/// A malformed line in a results file.
#[derive(Debug)]
pub struct Malformed;

impl FromStr for Measured {
    type Err = Malformed;

    fn from_str(line: &str) -> Result<Self, Malformed> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [metric, test, value, low, high, kernel, date] = fields[..] else { return Err(Malformed) };
        let number = |text: &str| text.parse::<f64>().map_err(|_| Malformed);
        Ok(Self {
            metric: metric.to_owned(),
            test: test.to_owned(),
            value: number(value)?,
            truth: number(low)?..=number(high)?,
            kernel: kernel.to_owned(),
            date: date.to_owned(),
        })
    }
}
