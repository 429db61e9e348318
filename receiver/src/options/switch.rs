//! A signal without settings of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings of a signal that can only be switched on and off.
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
