//! The groups that packets are told apart by, as programs found them.

use undercurrent_ebpf::abi::{
    group::{Dimension, Group, GroupCells},
    interface::Interface,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{
    choices::ENTRY,
    client::{Client, ServiceError},
    memory::{PlannedMap, Sizing},
    service::Table,
};

/// The map from groups to their numbers.
pub static GROUPS: PlannedMap = PlannedMap::new("GROUPS", ENTRY, Sizing::groups);
/// The queue of numbers that no group has.
pub static FREE: PlannedMap = PlannedMap::new("FREE_GROUPS", size_of::<u32>(), Sizing::groups);
/// The map from interfaces to their names.
pub static INTERFACES: PlannedMap = PlannedMap::new("INTERFACES", ENTRY, Sizing::groups);
/// Packets that are in no group, by CPU and reason.
pub static LOSSES: PlannedMap =
    PlannedMap::new(
        "GROUP_LOSSES",
        size_of::<GroupCells>(),
        |sizing| {
            if sizing.groups() > 0 { sizing.cpus } else { 0 }
        },
    );
/// Every map of groups.
pub static MAPS: [&PlannedMap; 4] = [&GROUPS, &FREE, &INTERFACES, &LOSSES];

/// What packets are told apart by beside their workload; by nothing at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupBy {
    bits: u32,
    limit: u16,
}

impl GroupBy {
    /// These dimensions, in at most so many groups.
    #[must_use]
    pub fn new(dimensions: impl Iterator<Item = Dimension>, limit: u16) -> Self {
        let bits = dimensions.map(Dimension::bit).sum();
        Self { bits, limit: if bits == 0 { 0 } else { limit } }
    }

    /// The dimensions' bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Groups at most.
    #[must_use]
    pub const fn limit(self) -> u16 {
        self.limit
    }
}

/// Gives programs numbers for groups, and takes them back.
pub struct Groups(Client);

impl Groups {
    /// Programs have no free numbers yet.
    pub(super) const fn new(client: Client) -> Self {
        Self(client)
    }

    /// Every group with its number. A group that changes meanwhile may be missing, and so may others: the next call returns
    /// them.
    ///
    /// # Errors
    /// The kernel's refusal to read the map.
    pub fn all(&self) -> Result<Vec<(Group, u32)>, ServiceError> {
        let group = |(key, number): (Vec<u8>, Vec<u8>)| {
            Some((Group::read_from_bytes(&key).ok()?, u32::read_from_bytes(&number).ok()?))
        };
        Ok(self.0.entries(Table::Groups)?.into_iter().filter_map(group).collect())
    }

    /// Lets a group go: packets that would be in it are in a new one. Programs may still be about to write to the old one.
    ///
    /// # Errors
    /// The kernel's refusal to write the map.
    pub fn remove(&self, group: &Group) -> Result<(), ServiceError> {
        self.0.remove(Table::Groups, group.as_bytes())
    }

    /// Gives programs a number for the next new group.
    ///
    /// # Errors
    /// The kernel's refusal to write the map.
    pub fn give(&self, number: u32) -> Result<(), ServiceError> {
        self.0.free_group(number)
    }

    /// The name that an interface had when its first group came to be; `None` where no program could tell.
    #[must_use]
    pub fn name(&self, interface: Interface) -> Option<String> {
        let name = self.0.get(Table::Interfaces, interface.as_bytes()).ok()??;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Some(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// Lets an interface's name go.
    pub fn forget(&self, interface: Interface) {
        // Of some no program could tell it.
        drop(self.0.remove(Table::Interfaces, interface.as_bytes()));
    }
}
