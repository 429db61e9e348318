//! Adaptive sampling of packets, which limits the CPU time of measurements.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::{
    kernel::sample::Sample,
    options::{Sampling, Weight},
    softnet,
};

/// Interval between two adjustments.
const PERIOD: Duration = Duration::from_secs(1);
/// Packet rate on one CPU, in packets a second, up to which every packet is measured. It costs one or two thousandths
/// of the CPU time.
const ALL: u32 = 5_000;
/// Upper limit of measured packets a second on a CPU with a higher rate, sufficient for all quantiles. A lower limit
/// would save little, because most of the cost is the entry into the programs (docs/overhead.md).
const SAMPLE: u32 = 2_500;

/// The controller of the sampling weight.
pub struct SamplingController {
    sample: Sample,
    /// The packet counts of CPUs at the last adjustment, and its time. `None` if the weight is fixed.
    last: Option<(Instant, BTreeMap<u32, u32>)>,
}

impl SamplingController {
    /// Sets the configured sampling.
    #[must_use]
    pub fn new(sample: Sample, sampling: Sampling) -> Self {
        let mut sampler = Self { sample, last: None };
        match sampling {
            Sampling::OneIn(weight) => sampler.set(weight),
            Sampling::Adaptive => sampler.last = Some((Instant::now(), BTreeMap::new())),
        }
        sampler
    }

    /// Returns the number of packets that one measured packet represents.
    #[must_use]
    pub const fn weight(&self) -> Weight {
        self.sample.weight()
    }

    /// Waits for the next adjustment and performs it. Never completes if the weight is fixed. Cancel safe.
    pub async fn changed(&mut self) {
        match &self.last {
            Some((last, _)) => tokio::time::sleep_until(*last + PERIOD).await,
            None => std::future::pending().await,
        }
        self.adjust();
    }

    fn adjust(&mut self) {
        let (Some((last, before)), now) = (&mut self.last, Instant::now()) else { return };
        let processed = match softnet::processed() {
            Ok(processed) => processed,
            Err(error) => {
                tracing::warn!("cannot read the packet rate; the sampling weight does not change: {error}");
                self.last = None;
                return;
            }
        };
        let rate = busiest(before, &processed, now - *last);
        (*last, *before) = (now, processed);
        let weight = next(self.weight(), rate);
        if weight != self.weight() {
            tracing::debug!(rate, weight = weight.get(), "the sampling weight changes");
            self.set(weight);
        }
    }

    fn set(&mut self, weight: Weight) {
        if let Err(error) = self.sample.set(weight) {
            tracing::warn!(
                "cannot set the sampling weight; programs still measure one packet in {}: {error}",
                self.weight().get()
            );
        }
    }
}

/// Returns the highest packet rate of all CPUs, in packets a second.
fn busiest(before: &BTreeMap<u32, u32>, now: &BTreeMap<u32, u32>, passed: Duration) -> f64 {
    // A CPU that comes online later counts from the next adjustment.
    let counts = now.iter().filter_map(|(cpu, count)| Some(count.wrapping_sub(*before.get(cpu)?)));
    f64::from(counts.max().unwrap_or(0)) / passed.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// Returns the next weight. It rises at once to the weight that the rate requires, and halves only if the rate leaves a
/// margin.
fn next(weight: Weight, rate: f64) -> Weight {
    let half = Weight::at_least(weight.get() / 2);
    if rate > highest(weight) {
        Weight::at_least((rate / f64::from(SAMPLE)).ceil() as u32)
    } else if rate < 0.8 * highest(half) {
        half
    } else {
        weight
    }
}

/// Returns the highest packet rate of a weight.
fn highest(weight: Weight) -> f64 {
    if weight == Weight::ONE { f64::from(ALL) } else { f64::from(weight.get()) * f64::from(SAMPLE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_cpu_determines_the_rate() {
        let before = BTreeMap::from([(0, 100), (1, u32::MAX - 5), (2, 0)]);
        let now = BTreeMap::from([(0, 200), (1, 194), (2, 0), (3, 1_000_000)]);
        assert_eq!(busiest(&before, &now, Duration::from_millis(500)), 400.0);
        assert_eq!(busiest(&BTreeMap::new(), &now, Duration::from_secs(1)), 0.0);
    }

    #[test]
    fn the_weight_rises_at_once_and_falls_step_by_step() {
        let rate = f64::from(ALL);
        let mut weight = Weight::ONE;
        let mut after = |rate| {
            weight = next(weight, rate);
            weight.get()
        };
        assert_eq!([0.0, rate, rate * 1.01, rate * 7.5, rate * 1e9].map(&mut after), [1, 1, 4, 16, 65_536]);
        assert_eq!([0.0; 3].map(&mut after), [32_768, 16_384, 8_192]);
    }

    #[test]
    fn a_steady_rate_keeps_its_weight() {
        let rate = f64::from(SAMPLE) * 15.0;
        let weight = next(Weight::ONE, rate);
        // A slightly lower rate keeps the weight, a much lower rate changes it.
        assert_eq!([rate * 1.05, rate * 0.6, rate * 0.4].map(|rate| next(weight, rate).get()), [16, 16, 8]);
        // A rate near the limit of full measurement does not make the weight oscillate.
        assert_eq!([5_001.0, 4_001.0].map(|rate| next(Weight::at_least(2), rate).get()), [4, 2]);
        assert_eq!([4_999.0, 3_999.0].map(|rate| next(Weight::at_least(2), rate).get()), [2, 1]);
    }
}
