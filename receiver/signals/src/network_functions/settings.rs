//! The settings of `network_functions`.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    kernel::{constant::Constant, memory::Sizing},
    options::FunctionName,
};

/// CPU time of the network stack by sampling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if the signal is measured.
    pub enabled: bool,
    /// The source of samples: the processor's cycle counter (`cycles`), a timer (`cpu_clock`), or the counter where the kernel opens it on
    /// every CPU and else the timer (`auto`).
    pub source: SampleSource,
    /// Samples per second of a CPU that is idle. Each sample by a timer wakes the CPU. The cycle counter stops while a CPU is halted.
    pub idle_frequency: Frequency,
    /// Fewest samples per second of a CPU that is not idle. With the cycle counter, all frequencies refer to a second of busy time.
    pub min_frequency: Frequency,
    /// Most samples per second of a CPU.
    pub max_frequency: Frequency,
    /// True if every CPU has points of its own (`cpu.logical_number`) for functions. The default is true if the table is the
    /// only output, otherwise false.
    #[schemars(with = "bool", extend("examples" = [true]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_cpu: Option<bool>,
    /// More classes of kernel functions, by name, for example `vxlan: [vxlan_rcv, vxlan_xmit]`. A function's class here replaces its
    /// predefined class.
    pub classes: Classes,
}

impl Settings {
    /// Returns the constants of the programs.
    pub(super) fn constants(&self, sizing: &Sizing) -> Vec<Constant> {
        vec![
            Constant::flag("signal.network_functions", self.enabled),
            Constant::size("sample.high_water", sizing.samples / 4),
        ]
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            source: SampleSource::Auto,
            idle_frequency: Frequency(10),
            min_frequency: Frequency(99),
            max_frequency: Frequency(997),
            per_cpu: None,
            classes: Classes::default(),
        }
    }
}

/// The source of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SampleSource {
    /// The cycle counter, or else the timer.
    Auto,
    /// The processor's cycle counter.
    Cycles,
    /// A timer.
    CpuClock,
}

/// Samples per second, 1 to 10000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u32", into = "u32")]
#[schemars(extend("title" = "frequency in hertz", "minimum" = 1, "maximum" = Frequency::HIGHEST))]
pub struct Frequency(u32);

impl Frequency {
    const HIGHEST: u32 = 10_000;

    /// Returns the samples per second.
    #[must_use]
    pub fn hertz(self) -> f64 {
        f64::from(self.0)
    }

    /// Returns the time between two samples.
    #[must_use]
    pub fn period(self) -> Duration {
        Duration::from_secs(1) / self.0
    }
}

impl TryFrom<u32> for Frequency {
    type Error = String;

    fn try_from(hertz: u32) -> Result<Self, String> {
        if (1..=Self::HIGHEST).contains(&hertz) {
            Ok(Self(hertz))
        } else {
            Err(format!("{hertz} samples per second are not possible: write 1 to {}", Self::HIGHEST))
        }
    }
}

impl From<Frequency> for u32 {
    fn from(frequency: Frequency) -> Self {
        frequency.0
    }
}

/// Most classes of a configuration.
const CLASSES: usize = 32;
/// Most functions of a class.
const FUNCTIONS: usize = 64;
/// Longest name of a class, in bytes.
const LONGEST: usize = 64;

/// Classes of functions by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "BTreeMap<String, Vec<FunctionName>>", into = "BTreeMap<String, Vec<FunctionName>>")]
#[schemars(extend("maxProperties" = CLASSES, "propertyNames" = { "pattern": "^[a-z][a-z0-9_]*$", "maxLength": LONGEST }))]
pub struct Classes(BTreeMap<String, Vec<FunctionName>>);

impl Classes {
    /// Returns the name and the functions of each class.
    pub fn iter(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &str>)> {
        self.0.iter().map(|(name, functions)| (name.as_str(), functions.iter().map(FunctionName::as_str)))
    }
}

impl TryFrom<BTreeMap<String, Vec<FunctionName>>> for Classes {
    type Error = String;

    fn try_from(classes: BTreeMap<String, Vec<FunctionName>>) -> Result<Self, String> {
        if classes.len() > CLASSES {
            return Err(format!("{} classes are too many: name {CLASSES} at most", classes.len()));
        }
        for (name, functions) in &classes {
            let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(part) || name.len() > LONGEST {
                return Err(format!("`{name}` is no name of a class: write lowercase letters, digits and `_`"));
            }
            if functions.len() > FUNCTIONS {
                return Err(format!("`{name}` has {} functions: name {FUNCTIONS} at most", functions.len()));
            }
        }
        let mut all: Vec<_> = classes.values().flatten().map(FunctionName::as_str).collect();
        all.sort_unstable();
        if let Some(pair) = all.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("`{}` is named twice: leave one out", pair[0]));
        }
        Ok(Self(classes))
    }
}

impl From<Classes> for BTreeMap<String, Vec<FunctionName>> {
    fn from(classes: Classes) -> Self {
        classes.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(settings: serde_json::Value) -> Result<Settings, String> {
        serde_json::from_value(settings).map_err(|error| error.to_string())
    }

    #[test]
    fn invalid_settings_are_errors_with_a_remedy() {
        let error = |settings| parse(settings).expect_err("an invalid setting");
        let errors = [
            error(serde_json::json!({ "max_frequency": 0 })),
            error(serde_json::json!({ "max_frequency": 10_001 })),
            error(serde_json::json!({ "classes": { "Mine": [] } })),
            error(serde_json::json!({ "classes": { "mine": ["a b"] } })),
            error(serde_json::json!({ "classes": { "mine": ["one", "one"] } })),
            error(serde_json::json!({ "classes": { "mine": ["one"], "other_one": ["one"] } })),
            error(serde_json::json!({ "classes": { "mine": vec!["f"; 65] } })),
        ];
        insta::assert_snapshot!(errors.join("\n"), @"
        0 samples per second are not possible: write 1 to 10000
        10001 samples per second are not possible: write 1 to 10000
        `Mine` is no name of a class: write lowercase letters, digits and `_`
        `a b` is no name of a kernel function: write letters, digits and `_`, as in `ip_rcv_finish`
        `one` is named twice: leave one out
        `one` is named twice: leave one out
        `mine` has 65 functions: name 64 at most
        ");
    }
}
