//! The amount of detail.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The amount of detail: the signals, layers and stages that are measured unless their own keys say otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Level {
    /// One program for each received packet, and one for each read.
    #[default]
    Normal,
    /// Every layer and stage, the exact time of softirqs, and their waits.
    Detailed,
}

/// The amount of detail of the sidecar's own telemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Internal {
    /// Losses from their first event on, the current state of each hook, and the total memory of the maps.
    #[default]
    Basic,
    /// Every possible loss and state from the start on, and the memory of each map.
    Detailed,
}
