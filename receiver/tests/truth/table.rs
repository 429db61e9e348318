//! The independent truth of each exported metric: `metrics.yaml` is the only list.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The comparisons of each metric, by the metric's name.
pub type Truths = BTreeMap<String, Vec<Comparison>>;

/// A test that compares a metric with an independent truth.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The source of the true value.
    pub truth: String,
    /// Path of the test in the kernel suite.
    pub test: String,
    /// The allowed error.
    #[serde(default)]
    pub allowed: Allowed,
    /// The allowed error on a real machine, if it differs. Other programs add traffic there, and the kernel may skip runs of
    /// programs (docs/internals/kernels.md).
    pub native: Option<Allowed>,
}

/// A bound of an error. A measurement may use both parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allowed {
    /// Share of the true value.
    pub relative: f64,
    /// Amount in the metric's unit.
    pub absolute: f64,
}

/// Reads the list.
pub fn truths() -> Truths {
    serde_saphyr::from_str(include_str!("metrics.yaml")).expect("metrics.yaml is valid")
}
