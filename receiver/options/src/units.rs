//! Values with a unit, for example `10s`, `500ms` and `64MiB`. Command line and configuration file share these types.

use std::{fmt, str::FromStr, time::Duration};

use bytesize::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An invalid value with a unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// A number without a unit.
    #[error("`{0}` has no unit: write a number and a unit, for example `10s` or `500ms`")]
    NoUnit(String),
    /// A text that is not a duration.
    #[error("`{0}` is no duration: write a number and a unit, for example `10s` or `500ms`")]
    NoDuration(String),
    /// A negative duration.
    #[error("`{0}` is negative: a duration is above zero, for example `10s`")]
    Negative(String),
    /// A duration of zero, where a positive duration is required.
    #[error("`{0}` is zero: a duration is above zero, for example `10s`")]
    Zero(String),
    /// A duration below the lower limit.
    #[error("`{text}` is too short: the shortest interval is {}", humantime::format_duration(*shortest))]
    TooShort {
        /// The text in the configuration.
        text: String,
        /// The lower limit.
        shortest: Duration,
    },
    /// A duration above the upper limit.
    #[error("`{text}` is too long: the longest here is {}", humantime::format_duration(*longest))]
    TooLong {
        /// The text in the configuration.
        text: String,
        /// The upper limit.
        longest: Duration,
    },
    /// A number without a unit of sizes.
    #[error("`{0}` has no unit: write a number and a unit, for example `64MiB`")]
    SizeWithoutUnit(String),
    /// A text that is not a size.
    #[error("`{0}` is no size: write a number and a unit, for example `64MiB`")]
    NoSize(String),
    /// A size below the lower limit.
    #[error("`{text}` is too small: the smallest is {smallest}")]
    TooSmall {
        /// The text in the configuration.
        text: String,
        /// The lower limit.
        smallest: MemoryLimit,
    },
}

/// Parses a duration above zero and at most `longest`.
fn duration(text: &str, longest: Duration) -> Result<Duration, UnitError> {
    let text = text.trim();
    let owned = || text.to_owned();
    // humantime accepts a zero without a unit, and reports other numbers without a unit as "missing unit" too.
    if text.parse::<f64>().is_ok_and(|number| number > 0.0) {
        return Err(UnitError::NoUnit(owned()));
    }
    if let Some(rest) = text.strip_prefix('-')
        && rest.starts_with(|first: char| first.is_ascii_digit() || first == '.')
    {
        return Err(UnitError::Negative(owned()));
    }
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err(UnitError::Zero(owned())),
        Ok(duration) if duration > longest => Err(UnitError::TooLong { text: owned(), longest }),
        Ok(duration) => Ok(duration),
        Err(_) => Err(UnitError::NoDuration(owned())),
    }
}

/// Time between two snapshots, 100 ms to one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("title" = "duration", "examples" = ["10s", "500ms"]))]
pub struct Interval(Duration);

impl Interval {
    /// The lower limit, chosen to keep the CPU time of snapshots small.
    pub const SHORTEST: Self = Self(Duration::from_millis(100));
    /// The upper limit, chosen to detect typing errors.
    pub const LONGEST: Self = Self(Duration::from_secs(24 * 60 * 60));
    /// The default for delivery to a collector.
    pub const DEFAULT: Self = Self(Duration::from_secs(10));
    /// The default for the live table.
    pub const DEFAULT_TABLE: Self = Self(Duration::from_secs(1));

    /// Returns the duration.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl TryFrom<Duration> for Interval {
    type Error = UnitError;

    fn try_from(duration: Duration) -> Result<Self, UnitError> {
        let text = || humantime::format_duration(duration).to_string();
        if duration < Self::SHORTEST.0 {
            return Err(UnitError::TooShort { text: text(), shortest: Self::SHORTEST.0 });
        }
        if duration > Self::LONGEST.0 {
            return Err(UnitError::TooLong { text: text(), longest: Self::LONGEST.0 });
        }
        Ok(Self(duration))
    }
}

impl FromStr for Interval {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match duration(text, Self::LONGEST.0) {
            Ok(duration) => duration.try_into(),
            Err(UnitError::Zero(text)) => Err(UnitError::TooShort { text, shortest: Self::SHORTEST.0 }),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// A time to wait or to run, above zero and at most one year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("title" = "duration", "examples" = ["10s"]))]
pub struct Span(Duration);

impl Span {
    /// A year in humantime, so that it prints as `1year`.
    const LONGEST: Duration = Duration::from_secs(31_557_600);

    /// Creates a span for a default.
    #[must_use]
    pub const fn new(duration: Duration) -> Self {
        Self(duration)
    }

    /// Returns the duration.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        duration(text, Self::LONGEST).map(Self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// An amount of memory, 1 MiB or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("title" = "size", "examples" = ["64MiB", "1GiB"]))]
pub struct MemoryLimit(u64);

impl MemoryLimit {
    const SMALLEST: Self = Self(bytesize::MIB);
    /// The default.
    pub const DEFAULT: Self = Self(176 * bytesize::MIB);

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl Default for MemoryLimit {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl FromStr for MemoryLimit {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        // The parser takes a number alone as bytes, and people mean mebibytes.
        if text.trim().parse::<f64>().is_ok_and(|number| number >= 0.0) {
            return Err(UnitError::SizeWithoutUnit(text.to_owned()));
        }
        // The parser saturates at 64 bits.
        let size: ByteSize = text
            .parse()
            .ok()
            .filter(|size| *size < ByteSize(u64::MAX))
            .ok_or_else(|| UnitError::NoSize(text.to_owned()))?;
        if size.as_u64() < Self::SMALLEST.0 {
            return Err(UnitError::TooSmall { text: text.to_owned(), smallest: Self::SMALLEST });
        }
        Ok(Self(size.as_u64()))
    }
}

/// Formats the exact size, so that parsing the text returns an equal size.
impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(bytesize::GIB, "GiB"), (bytesize::MIB, "MiB"), (bytesize::KIB, "KiB")];
        match units.into_iter().find(|(unit, _)| self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

macro_rules! text {
    ($($kind:ty),*) => {$(
        impl TryFrom<String> for $kind {
            type Error = UnitError;

            fn try_from(text: String) -> Result<Self, UnitError> {
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
text!(Interval, Span, MemoryLimit);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{read_back::assert_read_back_or_refused, variants::variants},
        *,
    };

    fn refusal<T: FromStr<Err = UnitError> + fmt::Debug>(text: &str) -> String {
        text.parse::<T>().expect_err(text).to_string()
    }

    #[test]
    fn invalid_intervals_have_specific_errors() {
        insta::assert_snapshot!(
            ["0", "0s", "-5s", "99ms", "2days", "10", "0.5", "ten seconds", "", "5 parsecs"]
                .map(refusal::<Interval>).join("\n"),
            @"
        `0` is too short: the shortest interval is 100ms
        `0s` is too short: the shortest interval is 100ms
        `-5s` is negative: a duration is above zero, for example `10s`
        `99ms` is too short: the shortest interval is 100ms
        `2days` is too long: the longest here is 1day
        `10` has no unit: write a number and a unit, for example `10s` or `500ms`
        `0.5` has no unit: write a number and a unit, for example `10s` or `500ms`
        `ten seconds` is no duration: write a number and a unit, for example `10s` or `500ms`
        `` is no duration: write a number and a unit, for example `10s` or `500ms`
        `5 parsecs` is no duration: write a number and a unit, for example `10s` or `500ms`
        "
        );
    }

    #[test]
    fn invalid_spans_have_specific_errors() {
        insta::assert_snapshot!(
            ["0s", "-5s", "-.5s", "--output", "600000000000y", "99999999999999999999s", "2y"]
                .map(refusal::<Span>).join("\n"),
            @"
        `0s` is zero: a duration is above zero, for example `10s`
        `-5s` is negative: a duration is above zero, for example `10s`
        `-.5s` is negative: a duration is above zero, for example `10s`
        `--output` is no duration: write a number and a unit, for example `10s` or `500ms`
        `600000000000y` is no duration: write a number and a unit, for example `10s` or `500ms`
        `99999999999999999999s` is no duration: write a number and a unit, for example `10s` or `500ms`
        `2y` is too long: the longest here is 1year
        "
        );
    }

    #[test]
    fn invalid_memory_limits_have_specific_errors() {
        insta::assert_snapshot!(
            ["0", "160", "1.5", "-1MiB", "1KiB", "much", "64 apples", "", "99999999999999999999GiB"]
                .map(refusal::<MemoryLimit>).join("\n"),
            @"
        `0` has no unit: write a number and a unit, for example `64MiB`
        `160` has no unit: write a number and a unit, for example `64MiB`
        `1.5` has no unit: write a number and a unit, for example `64MiB`
        `-1MiB` is no size: write a number and a unit, for example `64MiB`
        `1KiB` is too small: the smallest is 1MiB
        `much` is no size: write a number and a unit, for example `64MiB`
        `64 apples` is no size: write a number and a unit, for example `64MiB`
        `` is no size: write a number and a unit, for example `64MiB`
        `99999999999999999999GiB` is no size: write a number and a unit, for example `64MiB`
        "
        );
    }

    #[test]
    fn limits_are_inclusive() {
        assert_eq!("100ms".parse(), Ok(Interval::SHORTEST));
        assert_eq!("1day".parse(), Ok(Interval::LONGEST));
        assert_eq!("1m 30s".parse::<Interval>().map(Interval::get), Ok(Duration::from_secs(90)));
        assert_eq!("1MiB".parse(), Ok(MemoryLimit::SMALLEST));
        assert_eq!("176 mib".parse(), Ok(MemoryLimit::DEFAULT));
        assert!("1MB".parse::<MemoryLimit>().is_err(), "a megabyte is less than a mebibyte");
    }

    proptest! {
        #[test]
        fn durations_read_back(milliseconds in 100_u64..86_400_000) {
            let interval = Interval(Duration::from_millis(milliseconds));
            prop_assert_eq!(interval.to_string().parse(), Ok(interval));
        }

        #[test]
        fn sizes_read_back(bytes in bytesize::MIB..1 << 50) {
            let limit = MemoryLimit(bytes);
            prop_assert_eq!(limit.to_string().parse(), Ok(limit));
        }

        #[test]
        fn odd_durations_are_read_or_refused(text in variants(&["10s", "500ms", "1m 30s", "1.5s", "1day", "0s"])) {
            assert_read_back_or_refused(&text, Interval::from_str)?;
            assert_read_back_or_refused(&text, Span::from_str)?;
        }

        #[test]
        fn odd_sizes_are_read_or_refused(text in variants(&["160MiB", "160M", "1.5GiB", "64 mb", "1048576B", "0"])) {
            assert_read_back_or_refused(&text, MemoryLimit::from_str)?;
            let is_number = text.trim().trim_start_matches('+').parse::<f64>().is_ok();
            let message = text.parse::<MemoryLimit>().map_err(|error| error.to_string()).err().unwrap_or_default();
            prop_assert!(!is_number || !message.contains("too small"), "{:?}: {}", text, message);
        }

        #[test]
        fn no_text_panics(text in ".{0,24}") {
            let _ = (text.parse::<Interval>(), text.parse::<Span>(), text.parse::<MemoryLimit>());
        }
    }
}
