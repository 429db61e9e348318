//! Grouping keys of packets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::group::Dimension;

/// Grouping keys of the packets that `latency`, `receive_wait` and `transmit` measure, besides workload and IP version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Group {
    /// The grouping keys: `interface`, `network_namespace`, or both. `interface` adds `network.interface.name`, the receiving or
    /// sending interface. `network_namespace` adds `undercurrent.network.namespace`, the inode of the namespace.
    pub by: Dimensions,
    /// Maximum number of groups, 1 to 4096. Each group belongs to one workload, and its histograms take memory. Packets
    /// above the limit belong to no group; `undercurrent.lost` counts them with the reason `group_limit`.
    #[schemars(range(min = 1, max = MOST))]
    pub limit: GroupLimit,
}

impl Default for Group {
    fn default() -> Self {
        Self { by: Dimensions::default(), limit: GroupLimit(64) }
    }
}

/// The highest limit that a configuration can set.
const MOST: u16 = 4096;

/// A number of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u16", into = "u16")]
#[schemars(with = "u16")]
pub struct GroupLimit(u16);

impl GroupLimit {
    /// The lowest limit.
    pub const LEAST: Self = Self(1);

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for GroupLimit {
    type Error = String;

    fn try_from(limit: u16) -> Result<Self, String> {
        if (1..=MOST).contains(&limit) { Ok(Self(limit)) } else { Err(format!("`{limit}` groups: choose 1 to {MOST}")) }
    }
}

impl From<GroupLimit> for u16 {
    fn from(limit: GroupLimit) -> Self {
        limit.0
    }
}

/// The name of a grouping key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum DimensionName {
    Interface,
    NetworkNamespace,
}

impl From<DimensionName> for Dimension {
    fn from(name: DimensionName) -> Self {
        match name {
            DimensionName::Interface => Self::Interface,
            DimensionName::NetworkNamespace => Self::Namespace,
        }
    }
}

impl From<Dimension> for DimensionName {
    fn from(dimension: Dimension) -> Self {
        match dimension {
            Dimension::Interface => Self::Interface,
            Dimension::Namespace => Self::NetworkNamespace,
        }
    }
}

/// A list of distinct grouping keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<DimensionName>", into = "Vec<DimensionName>")]
#[schemars(extend("uniqueItems" = true))]
pub struct Dimensions(Vec<Dimension>);

impl Dimensions {
    /// Returns the grouping keys.
    pub fn iter(&self) -> impl Iterator<Item = Dimension> {
        self.0.iter().copied()
    }

    /// Returns true if the list contains a grouping key.
    #[must_use]
    pub fn contains(&self, dimension: Dimension) -> bool {
        self.0.contains(&dimension)
    }

    /// Returns true if the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<Vec<DimensionName>> for Dimensions {
    type Error = &'static str;

    fn try_from(names: Vec<DimensionName>) -> Result<Self, Self::Error> {
        let twice = names.iter().enumerate().any(|(place, name)| names[..place].contains(name));
        if twice {
            return Err("one of these is named twice: leave one out");
        }
        Ok(Self(names.into_iter().map(Dimension::from).collect()))
    }
}

impl From<Dimensions> for Vec<DimensionName> {
    fn from(dimensions: Dimensions) -> Self {
        dimensions.iter().map(DimensionName::from).collect()
    }
}
