//! Settings of a signal that has only an on/off switch.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings of a signal that has only an on/off switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Switch {
    /// True if the signal is measured.
    pub enabled: bool,
}

impl Default for Switch {
    fn default() -> Self {
        Self { enabled: true }
    }
}
