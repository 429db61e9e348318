//! The settings of `tcp_peers`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{kernel::constant::Constant, options::Networks};

/// Transactions of TCP connections by both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if the signal is measured. The default is true at the level `detailed`, and false at `normal`.
    #[schemars(with = "bool", extend("examples" = [true]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Names for addresses outside of this node, by the longest prefix. A peer in none of these networks is `other`.
    pub networks: Networks,
    /// Names of `networks` where another sidecar measures every server. Calls to these networks are not counted in
    /// `traces_service_graph_request_total`, because the sidecar at the server counts them.
    pub measured_networks: Vec<String>,
    /// Most combinations of workload, role, peer and port at a time, 64 to 16384, rounded up to a power of two. Each takes 2 KiB of kernel
    /// memory. Calls of further ones count for the peer `other` of the node.
    pub edges: EdgeLimit,
}

impl Settings {
    /// Returns true if the signal is measured.
    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or_default()
    }

    /// Returns the first of the measured networks that has no prefixes.
    #[must_use]
    pub fn unknown_network(&self) -> Option<&str> {
        self.measured_networks.iter().map(String::as_str).find(|name| !self.networks.has(name))
    }

    /// Returns the constants of the programs.
    pub fn constants(&self) -> [Constant; 2] {
        let mask = Constant::size("peers.mask", self.edges.entries() - 1);
        [Constant::flag("signal.tcp_peers", self.is_enabled()), mask]
    }
}

/// The most edges at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u16", into = "u16")]
#[schemars(with = "u16")]
pub struct EdgeLimit(u16);

/// The bounds of [`EdgeLimit`].
const LEAST: u16 = 64;
const MOST: u16 = 16_384;

impl EdgeLimit {
    /// Returns the number of entries of the table, a power of two.
    pub fn entries(self) -> usize {
        usize::from(self.0.next_power_of_two())
    }
}

impl Default for EdgeLimit {
    fn default() -> Self {
        Self(1024)
    }
}

impl TryFrom<u16> for EdgeLimit {
    type Error = String;

    fn try_from(limit: u16) -> Result<Self, String> {
        if (LEAST..=MOST).contains(&limit) {
            Ok(Self(limit))
        } else {
            Err(format!("`{limit}` edges: choose {LEAST} to {MOST}"))
        }
    }
}

impl From<EdgeLimit> for u16 {
    fn from(limit: EdgeLimit) -> Self {
        limit.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_a_power_of_two_of_entries() {
        let entries = |limit: u16| EdgeLimit::try_from(limit).map(EdgeLimit::entries);
        assert_eq!(entries(64), Ok(64));
        assert_eq!(entries(65), Ok(128));
        assert_eq!(entries(16_384), Ok(16_384));
        assert!(entries(63).is_err() && entries(16_385).is_err());
    }
}
