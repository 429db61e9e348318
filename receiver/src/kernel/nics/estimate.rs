//! How a NIC's clock relates to the wall clock, from readings of both.

use std::collections::VecDeque;

use undercurrent_ebpf::abi::driver::Conversion;

use super::reading::Reading;

/// Readings that the rate is taken from: the oldest and the newest of these.
const READINGS: usize = 8;
/// By how much a clock's rate may change while it is not looked at: temperature, and what disciplines it.
const WANDER: f64 = 1e-6;
/// 2^32, the unit of a conversion's rate.
const UNIT: f64 = 4_294_967_296.0;
/// Nanoseconds after a reading until which it is in use: the next one comes then.
const IN_USE: f64 = 1e9;

/// The distance of the two clocks at a time, all in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    /// The NIC's clock.
    nic: i64,
    /// The wall clock less the NIC's.
    offset: i64,
    /// How far the offset may be off.
    error: f64,
}

impl Anchor {
    /// Nanoseconds since an earlier one, by the NIC's clock.
    fn since(&self, earlier: &Self) -> f64 {
        self.nic.wrapping_sub(earlier.nic) as f64
    }

    /// By how much the wall clock gained on the NIC's since an earlier one.
    fn gain(&self, earlier: &Self) -> f64 {
        self.offset.wrapping_sub(earlier.offset) as f64
    }
}

impl From<Reading> for Anchor {
    fn from(reading: Reading) -> Self {
        let half = reading.bracket() / 2;
        let offset = reading.before.wrapping_add(half).wrapping_sub(reading.nic);
        // The half that rounding takes.
        Self { nic: reading.nic, offset, error: half as f64 + 1.0 }
    }
}

/// What is known of the relation of the two clocks.
///
/// A reading bounds their distance: the NIC's clock was read at some time between two of the wall clock. What was known
/// before bounds it too, wider the longer ago, and where the bounds meet, both hold. Where they do not, a clock was set, or
/// its rate was: what was known before counts no more.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    anchors: VecDeque<Anchor>,
}

impl Estimate {
    /// Takes a reading into account.
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

    /// Forgets everything: the wall clock was set.
    pub fn forget(&mut self) {
        self.anchors.clear();
    }

    /// How the wall clock follows from the NIC's until the next reading; `None` while too little is known.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a rate beyond all reason is not sound either")]
    pub fn conversion(&self) -> Option<Conversion> {
        let (last, (rate, _)) = (self.anchors.back()?, self.rate()?);
        let rate = ((rate * UNIT).round() as i64).cast_unsigned();
        let conversion = Conversion { reading: last.nic.cast_unsigned(), offset: last.offset.cast_unsigned(), rate };
        Some(conversion).filter(Conversion::is_sound)
    }

    /// How far it may be off until then, in seconds.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let (last, (_, uncertainty)) = (self.anchors.back()?, self.rate()?);
        Some(uncertainty.mul_add(IN_USE, last.error) / 1e9)
    }

    /// By how much faster the wall clock is, as a share, and how far that may be off.
    fn rate(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.anchors.front()?, self.anchors.back()?);
        let span = last.since(first);
        (span > 0.0).then(|| (last.gain(first) / span, (first.error + last.error) / span + WANDER))
    }
}

/// What is known of a distance that was measured, given an earlier one and the rate since; `None` where they disagree.
#[expect(clippy::cast_possible_truncation, reason = "less than what was measured may be off")]
fn meet(last: &Anchor, rate: f64, uncertainty: f64, measured: &Anchor) -> Option<Anchor> {
    let elapsed = measured.since(last);
    let (predicted, doubt) = (rate * elapsed, uncertainty.mul_add(elapsed, last.error));
    let apart = predicted - measured.gain(last);
    let low = (apart - doubt).max(-measured.error);
    let high = (apart + doubt).min(measured.error);
    // Between the bounds, as distances from what was measured.
    let middle = low.midpoint(high);
    let offset = measured.offset.wrapping_add(middle.round() as i64);
    (low <= high).then_some(Anchor { offset, error: (high - low) / 2.0 + 1.0, ..*measured })
}

#[cfg(test)]
mod tests;
