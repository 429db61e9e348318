//! The packet filter.

use std::{
    fmt,
    num::{NonZeroU16, NonZeroU32},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AbsolutePath;

/// The filter of the packets that `latency`, `receive_wait` and `transmit` measure. A packet passes if it matches an
/// entry of every non-empty list. A layer that cannot evaluate the filter counts the packet as lost, with the reason
/// `not_filterable`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Receiving or sending interfaces, in the network namespace that Undercurrent runs in. They may appear later.
    pub interfaces: Vec<Interface>,
    /// Network namespaces, as inodes or as paths, for example `/run/netns/blue` and `/proc/7/ns/net`. Paths may appear
    /// later.
    pub network_namespaces: Vec<Namespace>,
    /// Cgroups with all their descendants, as ids or as paths from the root of the hierarchy. They may appear later.
    /// Filter and workload attribution assign packets to cgroups by identical rules.
    pub cgroups: Vec<Cgroup>,
    /// Process ids, on the host, of the processes that read the packets. Only the socket read layers can evaluate them.
    pub processes: Vec<NonZeroU32>,
    /// Local ports.
    pub ports: Vec<NonZeroU16>,
    /// Minimum number of packets in the socket's receive queue at the time of measurement. 0 disables the condition.
    pub min_receive_queue: u32,
}

/// The name of a network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("title" = "name"))]
pub struct Interface(String);

impl Interface {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Interface {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        // The conditions of the kernel's `dev_valid_name`. `IFNAMSIZ` includes the terminating zero.
        let sound = !name.is_empty()
            && name.len() < libc::IFNAMSIZ
            && name != "."
            && name != ".."
            && !name.chars().any(|char| char == '/' || char == ':' || char == '\0' || char.is_whitespace());
        if sound { Ok(Self(name)) } else { Err(format!("`{name}` is no name of an interface: `ip link` lists them")) }
    }
}

impl From<Interface> for String {
    fn from(interface: Interface) -> Self {
        interface.0
    }
}

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "an inode or an absolute path of a network namespace")]
pub enum Namespace {
    /// The inode of the namespace.
    Inode(NonZeroU32),
    /// A path to the namespace.
    Path(AbsolutePath),
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inode(inode) => write!(f, "net:[{inode}]"),
            Self::Path(path) => path.fmt(f),
        }
    }
}

/// A cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "an id or a path of a cgroup, which begins with `/`")]
pub enum Cgroup {
    /// The cgroup id: the inode of its directory.
    Id(u64),
    /// The path from the root of the hierarchy.
    Path(AbsolutePath),
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Path(path) => path.fmt(f),
        }
    }
}
