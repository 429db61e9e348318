//! Powers, for example `35W`, and the range of a machine's power.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::telemetry::Watts;

/// The separator of a range.
const TO: &str = "..";
/// The largest power in a configuration, in watts.
const LARGEST: f64 = 100_000.0;

/// An invalid power, or range of powers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PowerError {
    /// A text that is not a power.
    #[error("`{0}` is no power: write a number and a unit, for example `35W` or `0.5W`")]
    NoPower(String),
    /// A power outside of the supported range.
    #[error("`{0}` is out of range: a power is 0W to 100000W")]
    OutOfRange(String),
    /// A text that is not a range.
    #[error("`{0}` is no range: write the idle power and the full power, for example `40W..200W`")]
    NoRange(String),
    /// A range that falls.
    #[error("the idle power {0} exceeds the full power {1}: write the idle power first, for example `40W..200W`")]
    Falling(Power, Power),
}

/// A power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("title" = "power", "examples" = ["35W"]))]
pub struct Power(pub Watts);

impl FromStr for Power {
    type Err = PowerError;

    fn from_str(text: &str) -> Result<Self, PowerError> {
        let none = || PowerError::NoPower(text.to_owned());
        let number = text.trim().strip_suffix('W').ok_or_else(none)?.trim_end();
        let is_decimal = number.starts_with(|first: char| first.is_ascii_digit())
            && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let watts: f64 = number.parse().ok().filter(|_| is_decimal).ok_or_else(none)?;
        if watts > LARGEST {
            return Err(PowerError::OutOfRange(text.to_owned()));
        }
        Ok(Self(Watts::from_microwatts((watts * 1e6).round() as u64)))
    }
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}W", self.0.microwatts() as f64 / 1e6)
    }
}

/// The power of an idle and of a fully used machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("title" = "range of powers", "examples" = ["40W..200W"]))]
pub struct PowerRange {
    idle: Power,
    full: Power,
}

impl PowerRange {
    /// Returns the power of the idle machine.
    #[must_use]
    pub const fn idle(self) -> Watts {
        self.idle.0
    }

    /// Returns the power that full use adds to the idle power.
    #[must_use]
    pub const fn dynamic(self) -> Watts {
        Watts::from_microwatts(self.full.0.microwatts() - self.idle.0.microwatts())
    }
}

impl FromStr for PowerRange {
    type Err = PowerError;

    fn from_str(text: &str) -> Result<Self, PowerError> {
        let (idle, full) = text.split_once(TO).ok_or_else(|| PowerError::NoRange(text.to_owned()))?;
        let (idle, full) = (idle.parse::<Power>()?, full.parse::<Power>()?);
        if idle > full { Err(PowerError::Falling(idle, full)) } else { Ok(Self { idle, full }) }
    }
}

impl fmt::Display for PowerRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{TO}{}", self.idle, self.full)
    }
}

macro_rules! text {
    ($($kind:ty),*) => {$(
        impl TryFrom<String> for $kind {
            type Error = PowerError;

            fn try_from(text: String) -> Result<Self, PowerError> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> Self {
                value.to_string()
            }
        }
    )*};
}
text!(Power, PowerRange);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{read_back::assert_read_back_or_refused, variants::variants},
        *,
    };

    #[test]
    fn powers_have_a_unit() {
        assert_eq!("35W".parse(), Ok(Power(Watts::new(35))));
        assert_eq!("0.5 W".parse(), Ok(Power(Watts::from_microwatts(500_000))));
        assert_eq!("0W".parse(), Ok(Power(Watts::new(0))));
        for text in ["35", "", "W", "-1W", "+1W", "1e3W", "infW", "NaNW", "0x10W", "35J"] {
            assert_eq!(text.parse::<Power>(), Err(PowerError::NoPower(text.to_owned())));
        }
        assert_eq!("100001W".parse::<Power>(), Err(PowerError::OutOfRange("100001W".to_owned())));
    }

    #[test]
    fn a_range_rises() {
        let range: PowerRange = "40W..200W".parse().expect("a range");
        assert_eq!((range.idle(), range.dynamic()), (Watts::new(40), Watts::new(160)));
        assert_eq!("40W..40W".parse::<PowerRange>().expect("a range").dynamic(), Watts::new(0));
        let falling = "200W..40W".parse::<PowerRange>().expect_err("refused").to_string();
        assert!(falling.starts_with("the idle power 200W exceeds the full power 40W"), "{falling}");
        assert!("40W".parse::<PowerRange>().is_err());
    }

    proptest! {
        #[test]
        fn powers_read_back(microwatts in 0_u64..=100_000_000_000) {
            let power = Power(Watts::from_microwatts(microwatts));
            prop_assert_eq!(power.to_string().parse(), Ok(power));
        }

        #[test]
        fn odd_powers_are_read_or_refused(text in variants(&["35W", "0.5 W", "40W..200W", "100000W", "0W"])) {
            assert_read_back_or_refused(&text, Power::from_str)?;
            assert_read_back_or_refused(&text, PowerRange::from_str)?;
        }

        #[test]
        fn no_text_panics(text in ".{0,24}") {
            let _ = (text.parse::<Power>(), text.parse::<PowerRange>());
        }
    }
}
