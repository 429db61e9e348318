//! Numbers with units, and their text for people: three digits and a unit.

use std::fmt;

/// A number with a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// The number.
    pub value: f64,
    /// The unit.
    pub unit: Unit,
}

/// A unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// No unit, or the unit that the heading of the column names.
    None,
    /// A UCUM unit.
    Ucum(&'static str),
    /// A UCUM unit per second.
    PerSecond(&'static str),
    /// A fraction of a whole, which is displayed in percent.
    Share,
}

impl Quantity {
    pub(super) const fn number(value: f64) -> Self {
        Self { value, unit: Unit::None }
    }

    pub(super) const fn amount(value: f64, unit: &'static str) -> Self {
        Self { value, unit: Unit::Ucum(unit) }
    }

    pub(super) const fn rate(value: f64, unit: &'static str) -> Self {
        Self { value, unit: Unit::PerSecond(unit) }
    }

    pub(super) const fn share(value: f64) -> Self {
        Self { value, unit: Unit::Share }
    }

    /// Returns a duration in seconds.
    #[must_use]
    pub const fn seconds(value: f64) -> Self {
        Self::amount(value, "s")
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self.unit {
            Unit::None => number(self.value),
            Unit::Ucum(unit) => amount(self.value, unit),
            Unit::PerSecond(unit) => rate(self.value, unit),
            Unit::Share => percent(self.value),
        })
    }
}

/// Formats a number, with an SI prefix from 1000 on: `0`, `0.25`, `7.1`, `999`, `12.3k`. Small integers have no
/// decimals.
fn number(value: f64) -> String {
    if value.abs() >= 999.5 {
        let (scaled, prefix) = prefixed(value, &["", "k", "M", "G", "T", "P", "E"], 0);
        return format!("{}{prefix}", digits(scaled));
    }
    if value.fract() == 0.0 { format!("{value:.0}") } else { digits(value) }
}

/// Formats an amount in a UCUM unit. Seconds and other SI units get prefixes from nano on; amounts in other units
/// are bare numbers.
fn amount(value: f64, unit: &str) -> String {
    match unit {
        "s" => measure(value, "s"),
        "J" => measure(value, "J"),
        "W" => measure(value, "W"),
        "Hz" => measure(value, "Hz"),
        "By" => format!("{}B", number(value)),
        _ => number(value),
    }
}

/// Formats a growth per second in a UCUM unit.
fn rate(per_second: f64, unit: &str) -> String {
    match unit {
        "J" => measure(per_second, "W"),
        _ => format!("{}/s", amount(per_second, unit)),
    }
}

/// Formats a share as a percentage.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let text = if percent == 0.0 { "0".to_owned() } else { digits(percent) };
    format!("{text}%")
}

fn measure(value: f64, symbol: &str) -> String {
    if value == 0.0 {
        return format!("0{symbol}");
    }
    // Kiloseconds are uncommon.
    let prefixes: &[&str] = if symbol == "s" { &["n", "µ", "m", ""] } else { &["n", "µ", "m", "", "k", "M", "G"] };
    let (scaled, prefix) = prefixed(value, prefixes, 3);
    format!("{}{prefix}{symbol}", digits(scaled))
}

/// Scales the value to between 1 and 1000 if a prefix exists; `base` is the index of the empty prefix.
fn prefixed<'a>(value: f64, prefixes: &[&'a str], base: usize) -> (f64, &'a str) {
    let mut scaled = value * 1000_f64.powi(i32::try_from(base).unwrap_or(0));
    let last = prefixes.len() - 1;
    for prefix in &prefixes[..last] {
        if scaled.abs() < 999.5 {
            return (scaled, prefix);
        }
        scaled /= 1000.0;
    }
    (scaled, prefixes[last])
}

/// Formats three significant digits, at least the integer part, with two decimals at most.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size < 0.005 && size > 0.0 => "<0.01".to_owned(),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_prefix() {
        let numbers = [0.0, 0.004, 0.25, 7.0, 9.996, 999.4, 999.6, 12_345.0, 1e6, 1.5e20];
        assert_eq!(numbers.map(number), ["0", "<0.01", "0.25", "7", "10.0", "999", "1.00k", "12.3k", "1.00M", "150E"]);
        let seconds = [0.0, 59.6e-9, 1.19e-6, 999.7e-6, 16.8e-3, 1.0, 4000.0];
        let shown = seconds.map(|seconds| amount(seconds, "s"));
        assert_eq!(shown, ["0s", "59.6ns", "1.19µs", "1.00ms", "16.8ms", "1.00s", "4000s"]);
    }

    #[test]
    fn rates_depend_on_the_unit() {
        assert_eq!(rate(1234.0, "{packet}"), "1.23k/s");
        assert_eq!(rate(2.5e6, "By"), "2.50MB/s");
        assert_eq!(rate(0.25, "J"), "250mW");
        assert_eq!([0.0, 0.5, 0.012, 0.000_01].map(percent), ["0%", "50.0%", "1.20%", "<0.01%"]);
    }
}
