//! Which packets are measured, by what they are.

use std::{
    fmt,
    num::{NonZeroU16, NonZeroU32},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AbsolutePath;

/// Which packets are measured, here, by `receive_wait` and by `transmit`. A packet is measured where each list that is not
/// empty has something of it. At a layer that cannot tell, it is counted as lost for the reason `unfiltered`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Interfaces that packets come in by, or leave by, of the network namespace that Undercurrent runs in. They may
    /// appear later.
    pub interfaces: Vec<Interface>,
    /// Network namespaces: paths such as `/run/netns/blue` and `/proc/7/ns/net`, which may appear later, or inodes.
    pub network_namespaces: Vec<Namespace>,
    /// Cgroups, with all below them: paths from the hierarchy's root, or ids. They may appear later. A packet counts for a
    /// cgroup as it does for a workload.
    pub cgroups: Vec<Cgroup>,
    /// Processes that read the packets, by their ids on the host. Only reads know them.
    pub processes: Vec<NonZeroU32>,
    /// Local ports.
    pub ports: Vec<NonZeroU16>,
    /// How many packets a socket's receive queue has at least when one of them is seen; 0 asks for none.
    pub min_receive_queue: u32,
}

/// The name of a network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("title" = "name"))]
pub struct Interface(String);

impl Interface {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Interface {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        // `dev_valid_name` of the kernel, and `IFNAMSIZ` with the zero at its end.
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
    /// By its inode.
    Inode(NonZeroU32),
    /// By a path that leads to it.
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
    /// By its id, which is its directory's inode.
    Id(u64),
    /// By its path from the root of its hierarchy.
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
