//! What is told apart by workload.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose a measurement is: containers, pods, units and other cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Workloads {
    /// Whether measurements are told apart by workload. Without it everything stands with the node.
    pub enabled: bool,
    /// How many workloads have figures of their own, first come first served; the others are added up as one. Kernel
    /// memory grows with it: `undercurrent doctor` says by how much.
    #[schemars(range(min = 1, max = 4096))]
    #[serde(deserialize_with = "limit")]
    pub limit: u16,
}

/// The most workloads that the table from owners to slots is made for.
const MOST: u16 = 4096;

impl Default for Workloads {
    fn default() -> Self {
        Self { enabled: true, limit: 256 }
    }
}

fn limit<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let number = u64::deserialize(deserializer)?;
    let limit = u16::try_from(number).ok().filter(|limit| (1..=MOST).contains(limit));
    limit.ok_or_else(|| serde::de::Error::custom(format!("`{number}` is no limit of workloads: choose 1 to {MOST}")))
}
