//! Energy and power.

use std::{
    iter::Sum,
    ops::{Add, AddAssign},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// An amount of energy in whole microjoules, the unit of the kernel's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Microjoules(pub u64);

/// An amount of energy in joules, the unit of exported points.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Joules(pub f64);

/// A power, in whole microwatts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Watts {
    microwatts: u64,
}

impl Watts {
    /// Returns a power in microwatts, the unit of the kernel's sensors.
    #[must_use]
    pub const fn from_microwatts(microwatts: u64) -> Self {
        Self { microwatts }
    }

    /// Returns a power in whole watts.
    #[must_use]
    pub const fn new(watts: u64) -> Self {
        Self { microwatts: watts * 1_000_000 }
    }

    /// Returns the number of microwatts.
    #[must_use]
    pub const fn microwatts(self) -> u64 {
        self.microwatts
    }

    /// Returns the energy of this power over a time, rounded down.
    #[must_use]
    pub fn over(self, time: Duration) -> Microjoules {
        saturated(u128::from(self.microwatts).saturating_mul(time.as_nanos()) / 1_000_000_000)
    }
}

impl Microjoules {
    /// Returns the mean power over a time, rounded down; `None` for a time of zero.
    #[must_use]
    pub fn per(self, time: Duration) -> Option<Watts> {
        let microwatts = (u128::from(self.0) * 1_000_000_000).checked_div(time.as_nanos())?;
        Some(Watts::from_microwatts(saturated(microwatts).0))
    }

    /// Returns the difference; zero if `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

fn saturated(amount: u128) -> Microjoules {
    Microjoules(u64::try_from(amount).unwrap_or(u64::MAX))
}

impl From<Microjoules> for Joules {
    fn from(energy: Microjoules) -> Self {
        Self(energy.0 as f64 / 1e6)
    }
}

impl Add for Microjoules {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Microjoules {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Microjoules {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_and_energy_convert_exactly() {
        assert_eq!(Watts::new(15).over(Duration::from_millis(500)), Microjoules(7_500_000));
        assert_eq!(Microjoules(7_500_000).per(Duration::from_millis(500)), Some(Watts::new(15)));
        assert_eq!(Microjoules(1).per(Duration::ZERO), None);
        assert_eq!(Joules::from(Microjoules(2_500_000)), Joules(2.5));
        assert_eq!(Watts::from_microwatts(u64::MAX).over(Duration::MAX), Microjoules(u64::MAX));
    }
}
