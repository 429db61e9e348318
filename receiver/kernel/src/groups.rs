//! The groups of packets, which programs create.

use undercurrent_ebpf::abi::{
    group::{Group, GroupCells},
    interface::Interface,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{
    client::{Client, ServiceError},
    memory::{HASH_ENTRY, PlannedMap, Sizing},
    messages::{FreeGroup, Get, List, Table},
};

/// The map from groups to their numbers.
pub static GROUPS: PlannedMap = PlannedMap::new(Table::Groups.map(), HASH_ENTRY, Sizing::groups);
/// The queue of free group numbers.
pub static FREE: PlannedMap = PlannedMap::new("FREE_GROUPS", size_of::<u32>(), Sizing::groups);
/// The map from interfaces to their names.
pub static INTERFACES: PlannedMap = PlannedMap::new(Table::Interfaces.map(), HASH_ENTRY, Sizing::groups);
/// Counts of packets without a group, by CPU and reason.
pub static LOSSES: PlannedMap =
    PlannedMap::by_cpu::<GroupCells>("GROUP_LOSSES", |sizing| if sizing.groups() > 0 { sizing.cpus } else { 0 });
/// All maps of groups.
pub static MAPS: [&PlannedMap; 4] = [&GROUPS, &FREE, &INTERFACES, &LOSSES];

/// The index of a group in all maps with measurements of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupIndex(pub u32);

impl GroupIndex {
    /// Returns the index.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// Supplies programs with group numbers and reads the groups.
pub struct Groups(Client);

impl Groups {
    /// Creates the access to the maps; the queue of free numbers is empty.
    pub(super) const fn new(client: Client) -> Self {
        Self(client)
    }

    /// Returns all groups with their indices. Concurrent changes may hide groups; the next call returns them.
    ///
    /// # Errors
    /// If the kernel refuses to read the map.
    pub fn all(&self) -> Result<Vec<(Group, GroupIndex)>, ServiceError> {
        let group = |(key, number): (Vec<u8>, Vec<u8>)| {
            Some((Group::read_from_bytes(&key).ok()?, GroupIndex(u32::read_from_bytes(&number).ok()?)))
        };
        Ok(self.0.call(List { table: Table::Groups })?.into_iter().filter_map(group).collect())
    }

    /// Removes a group; later packets of the group create a new one. Running programs may still write to the old one.
    ///
    /// # Errors
    /// If the kernel refuses to write the map.
    pub fn remove(&self, group: &Group) -> Result<(), ServiceError> {
        self.0.remove(Table::Groups, group.as_bytes())
    }

    /// Appends an index for the next new group.
    ///
    /// # Errors
    /// If the kernel refuses to write the map.
    pub fn give(&self, index: GroupIndex) -> Result<(), ServiceError> {
        self.0.call(FreeGroup { number: index.0 })
    }

    /// Returns the name of an interface when its first group was created; `None` if no program could read the name.
    #[must_use]
    pub fn name(&self, interface: Interface) -> Option<String> {
        let name = self.0.call(Get { table: Table::Interfaces, key: interface.as_bytes().to_vec() }).ok()??;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Some(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// Removes the name of an interface.
    pub fn forget(&self, interface: Interface) {
        // The entry is missing if no program could read the name.
        drop(self.0.remove(Table::Interfaces, interface.as_bytes()));
    }
}
