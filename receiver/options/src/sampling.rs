//! Sampling of packets.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The sampling of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("title" = "`adaptive`, `all` or `1/n`", "examples" = ["adaptive", "all", "1/16"]))]
pub enum Sampling {
    /// All packets up to a rate on the busiest CPU, and fewer packets above that rate.
    #[default]
    Adaptive,
    /// One packet in `Weight` packets.
    OneIn(Weight),
}

/// The number of packets that one measured packet represents: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u32);

impl Weight {
    /// The weight if every packet is measured.
    pub const ONE: Self = Self(1);
    /// The highest weight.
    pub const MOST: Self = Self(1 << 16);

    /// Returns the weight as a number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the smallest weight that is at least `number`, limited to [`Self::MOST`].
    #[must_use]
    pub const fn at_least(number: u32) -> Self {
        if number > Self::MOST.0 { Self::MOST } else { Self(number.next_power_of_two()) }
    }
}

/// A text that is not a valid sampling.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no sampling: write `adaptive`, `all`, or `1/2`, `1/4` and so on up to `1/65536`")]
pub struct SamplingError(String);

impl FromStr for Sampling {
    type Err = SamplingError;

    fn from_str(text: &str) -> Result<Self, SamplingError> {
        let wrong = || SamplingError(text.to_owned());
        match text.trim() {
            "adaptive" => Ok(Self::Adaptive),
            "all" => Ok(Self::OneIn(Weight::ONE)),
            share => {
                let number: u32 = share.strip_prefix("1/").and_then(|n| n.parse().ok()).ok_or_else(wrong)?;
                let weight = Weight::at_least(number);
                if weight.0 == number { Ok(Self::OneIn(weight)) } else { Err(wrong()) }
            }
        }
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => f.write_str("adaptive"),
            Self::OneIn(Weight::ONE) => f.write_str("all"),
            Self::OneIn(Weight(number)) => write!(f, "1/{number}"),
        }
    }
}

impl TryFrom<String> for Sampling {
    type Error = SamplingError;

    fn try_from(text: String) -> Result<Self, SamplingError> {
        text.parse()
    }
}

impl From<Sampling> for String {
    fn from(sampling: Sampling) -> Self {
        sampling.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{read_back::assert_read_back_or_refused, variants::variants},
        *,
    };

    proptest::proptest! {
        #[test]
        fn odd_samplings_are_read_or_refused(text in variants(&["adaptive", "all", "1/16", "1/65536"])) {
            assert_read_back_or_refused(&text, Sampling::from_str)?;
        }
    }

    #[test]
    fn shares_are_powers_of_two() {
        for text in ["adaptive", "all", "1/2", "1/1024", "1/65536"] {
            assert_eq!(text.parse::<Sampling>().unwrap().to_string(), text);
        }
        assert_eq!("1/1".parse(), Ok(Sampling::OneIn(Weight::ONE)));
        for text in ["", "none", "8", "1/0", "1/3", "1/-2", "2/4", "1/131072", "1/4294967297"] {
            let error = text.parse::<Sampling>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("`adaptive`, `all`, or `1/2`"), "{error}");
        }
    }

    #[test]
    fn weights_go_up_to_the_most() {
        assert_eq!(
            [0, 1, 2, 3, 65_536, 65_537, u32::MAX].map(|n| Weight::at_least(n).get()),
            [1, 1, 2, 4, 65_536, 65_536, 65_536]
        );
    }
}
