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

/// The settings of a signal that only the level `detailed` measures by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DetailSwitch {
    /// True if the signal is measured. The default is true at the level `detailed`, and false at `normal`.
    #[schemars(with = "bool", extend("examples" = [true]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}
