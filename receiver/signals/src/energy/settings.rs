//! The settings of `energy`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::options::{Power, PowerRange, Span};

/// Energy of the node, divided over workloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if energy is measured.
    pub enabled: bool,
    /// Power of the idle processors, which counts for the node. The default is the lowest power within `idle_window`.
    #[schemars(with = "Power")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Power>,
    /// The time over which the lowest power of each domain counts as its idle power.
    pub idle_window: Span,
    /// The power of the processors without load and under full load, as `IDLE..FULL`. It replaces missing power meters, for
    /// example in virtual machines. Without it, nodes without power meters have no energy metrics.
    #[schemars(with = "PowerRange")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<PowerRange>,
}

/// The default of `idle_window`.
const WINDOW: Duration = Duration::from_secs(600);

impl Default for Settings {
    fn default() -> Self {
        Self { enabled: true, idle: None, idle_window: Span::new(WINDOW), model: None }
    }
}
