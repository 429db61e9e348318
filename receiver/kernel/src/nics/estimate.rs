//! Estimation of the offset and rate between a NIC's clock and the wall clock.

use std::collections::VecDeque;

use undercurrent_ebpf::abi::driver::Conversion;

use crate::nic_inventory::Reading;

/// The number of kept readings; the oldest and the newest determine the rate.
const READINGS: usize = 8;
/// The possible change of a clock's rate between readings, due to temperature and clock discipline.
const WANDER: f64 = 1e-6;
/// 2^32, the unit of a conversion's rate.
const UNIT: f64 = 4_294_967_296.0;
/// Nanoseconds for which a reading is used, until the next one.
const IN_USE: f64 = 1e9;

/// The offset between the two clocks at one time, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    /// The NIC's clock.
    nic: i64,
    /// The wall clock minus the NIC's clock.
    offset: i64,
    /// The maximum error of the offset.
    error: f64,
}

impl Anchor {
    /// Returns the nanoseconds since an earlier anchor, by the NIC's clock.
    fn since(&self, earlier: &Self) -> f64 {
        self.nic.wrapping_sub(earlier.nic) as f64
    }

    /// Returns the change of the offset since an earlier anchor, in nanoseconds.
    fn gain(&self, earlier: &Self) -> f64 {
        self.offset.wrapping_sub(earlier.offset) as f64
    }
}

impl From<Reading> for Anchor {
    fn from(reading: Reading) -> Self {
        let half = reading.bracket() / 2;
        let offset = reading.before.wrapping_add(half).wrapping_sub(reading.nic);
        // The rounding error of the midpoint.
        Self { nic: reading.nic, offset, error: half as f64 + 1.0 }
    }
}

/// The estimated relation of the two clocks.
///
/// A reading bounds the offset: the NIC's clock was read between two readings of the wall clock. Earlier readings also
/// bound it, more loosely with age. The estimate is the intersection of the bounds. If it is empty, a clock or its rate
/// was set, and the estimate drops the earlier readings.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    anchors: VecDeque<Anchor>,
}

impl Estimate {
    /// Updates the estimate with a reading.
    pub fn add(&mut self, reading: Reading) {
        let measured = Anchor::from(reading);
        let anchor = match (self.anchors.back(), self.rate()) {
            (Some(last), _) if measured.since(last) <= 0.0 => None,
            (Some(last), Some((rate, uncertainty))) => meet(last, rate, uncertainty, &measured),
            _ => Some(measured),
        };
        if anchor.is_none() {
            self.anchors.clear();
        }
        if self.anchors.len() == READINGS {
            self.anchors.pop_front();
        }
        self.anchors.push_back(anchor.unwrap_or(measured));
    }

    /// Drops all readings, because the wall clock was set.
    pub fn forget(&mut self) {
        self.anchors.clear();
    }

    /// Returns the conversion to the wall clock until the next reading; `None` until the rate is known.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a rate that overflows is wrong in any case")]
    pub fn conversion(&self) -> Option<Conversion> {
        let (last, (rate, _)) = (self.anchors.back()?, self.rate()?);
        let rate = ((rate * UNIT).round() as i64).cast_unsigned();
        let conversion = Conversion { reading: last.nic.cast_unsigned(), offset: last.offset.cast_unsigned(), rate };
        Some(conversion).filter(Conversion::is_sound)
    }

    /// Returns the maximum error of the conversion until the next reading, in seconds.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let (last, (_, uncertainty)) = (self.anchors.back()?, self.rate()?);
        Some(uncertainty.mul_add(IN_USE, last.error) / 1e9)
    }

    /// Returns the rate of the wall clock relative to the NIC's clock, minus one, and the maximum error of that rate.
    fn rate(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.anchors.front()?, self.anchors.back()?);
        let span = last.since(first);
        (span > 0.0).then(|| (last.gain(first) / span, (first.error + last.error) / span + WANDER))
    }
}

/// Intersects the bounds of a measured offset with those predicted from an earlier one; `None` if they are disjoint.
#[expect(clippy::cast_possible_truncation, reason = "the value is smaller than the measured error")]
fn meet(last: &Anchor, rate: f64, uncertainty: f64, measured: &Anchor) -> Option<Anchor> {
    let elapsed = measured.since(last);
    let (predicted, doubt) = (rate * elapsed, uncertainty.mul_add(elapsed, last.error));
    let apart = predicted - measured.gain(last);
    let low = (apart - doubt).max(-measured.error);
    let high = (apart + doubt).min(measured.error);
    // The bounds, relative to the measured offset.
    let middle = low.midpoint(high);
    let offset = measured.offset.wrapping_add(middle.round() as i64);
    (low <= high).then_some(Anchor { offset, error: (high - low) / 2.0 + 1.0, ..*measured })
}

#[cfg(test)]
mod tests;
