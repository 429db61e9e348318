//! How many packets are measured, so that measuring them never takes more than it may.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::softnet;
use crate::{
    kernel::sample::Sample,
    options::{Sampling, Weight},
};

/// How often rates are looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// Packets a second on one CPU up to which all are measured: it takes a thousandth of the CPU's time or two.
const ALL: u32 = 5_000;
/// Packets a second that are measured at most on one CPU that has more: no quantile needs as many. Fewer would save little,
/// since most of what a packet takes then is entering the programs (docs/overhead.md).
const SAMPLE: u32 = 2_500;

/// Keeps the share of packets that are measured.
pub struct Thinning {
    sample: Sample,
    /// What CPUs had processed, and when; `None` where the share is fixed.
    last: Option<(Instant, BTreeMap<u32, u32>)>,
}

impl Thinning {
    /// Measures packets as the configuration wants.
    #[must_use]
    pub fn new(sample: Sample, sampling: Sampling) -> Self {
        let mut thinning = Self { sample, last: None };
        match sampling {
            Sampling::OneIn(weight) => thinning.set(weight),
            Sampling::Adaptive => thinning.last = Some((Instant::now(), BTreeMap::new())),
        }
        thinning
    }

    /// How many packets stand for one that is measured.
    #[must_use]
    pub const fn weight(&self) -> Weight {
        self.sample.weight()
    }

    /// Waits until rates are to be looked at, and looks. Never, where the share is fixed. Cancel safe.
    pub async fn changed(&mut self) {
        match &self.last {
            Some((last, _)) => tokio::time::sleep_until(*last + PERIOD).await,
            None => std::future::pending().await,
        }
        self.look();
    }

    fn look(&mut self) {
        let (Some((last, before)), now) = (&mut self.last, Instant::now()) else { return };
        let processed = match softnet::processed() {
            Ok(processed) => processed,
            Err(error) => {
                tracing::warn!("as many packets are measured as before, whatever their rate: {error}");
                self.last = None;
                return;
            }
        };
        let rate = busiest(before, &processed, now - *last);
        (*last, *before) = (now, processed);
        let weight = next(self.weight(), rate);
        if weight != self.weight() {
            tracing::debug!(rate, weight = weight.get(), "the share of packets that are measured changes");
            self.set(weight);
        }
    }

    fn set(&mut self, weight: Weight) {
        if let Err(error) = self.sample.set(weight) {
            tracing::warn!("programs go on measuring one packet in {}: {error}", self.weight().get());
        }
    }
}

/// Packets a second on the CPU that had most.
fn busiest(before: &BTreeMap<u32, u32>, now: &BTreeMap<u32, u32>, passed: Duration) -> f64 {
    // A CPU that comes online later is counted from the next look on.
    let counts = now.iter().filter_map(|(cpu, count)| Some(count.wrapping_sub(*before.get(cpu)?)));
    f64::from(counts.max().unwrap_or(0)) / passed.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// The weight after this one: at once as high as a rate wants, and lower only where half of it would do with room.
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

/// The highest rate that a weight will do for.
fn highest(weight: Weight) -> f64 {
    if weight == Weight::ONE { f64::from(ALL) } else { f64::from(weight.get()) * f64::from(SAMPLE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_cpu_decides() {
        let before = BTreeMap::from([(0, 100), (1, u32::MAX - 5), (2, 0)]);
        let now = BTreeMap::from([(0, 200), (1, 194), (2, 0), (3, 1_000_000)]);
        assert_eq!(busiest(&before, &now, Duration::from_millis(500)), 400.0);
        assert_eq!(busiest(&BTreeMap::new(), &now, Duration::from_secs(1)), 0.0);
    }

    #[test]
    fn a_share_falls_at_once_and_rises_step_by_step() {
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
    fn a_steady_rate_keeps_its_share() {
        let rate = f64::from(SAMPLE) * 15.0;
        let weight = next(Weight::ONE, rate);
        // A little less is no reason to change, much less is.
        assert_eq!([rate * 1.05, rate * 0.6, rate * 0.4].map(|rate| next(weight, rate).get()), [16, 16, 8]);
        // Nor does a rate about the highest of which all is measured change it to and fro.
        assert_eq!([5_001.0, 4_001.0].map(|rate| next(Weight::at_least(2), rate).get()), [4, 2]);
        assert_eq!([4_999.0, 3_999.0].map(|rate| next(Weight::at_least(2), rate).get()), [2, 1]);
    }
}
