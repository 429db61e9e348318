//! The groups that packets are told apart by, as programs found them.

use aya::maps::{HashMap, MapData, MapError, Queue};
use undercurrent_ebpf::abi::{
    group::{Dimension, Group},
    interface::{Interface, NAME},
};
use zerocopy::FromBytes as _;

use super::maps::bytes;

/// The map from groups to their numbers.
pub const GROUPS: &str = "GROUPS";
/// The queue of numbers that no group has.
pub const FREE: &str = "FREE_GROUPS";
/// The map from interfaces to their names.
pub const INTERFACES: &str = "INTERFACES";

const GROUP: usize = size_of::<Group>();
const INTERFACE: usize = size_of::<Interface>();

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
pub struct Groups {
    numbers: HashMap<MapData, [u8; GROUP], u32>,
    free: Queue<MapData, u32>,
    names: HashMap<MapData, [u8; INTERFACE], [u8; NAME]>,
}

impl Groups {
    /// Takes charge of the maps. Programs have no numbers to give.
    ///
    /// # Errors
    /// Where a map is of another kind.
    pub(super) fn new(numbers: aya::maps::Map, free: aya::maps::Map, names: aya::maps::Map) -> Result<Self, MapError> {
        Ok(Self { numbers: numbers.try_into()?, free: free.try_into()?, names: names.try_into()? })
    }

    /// Every group with its number.
    pub fn iter(&self) -> impl Iterator<Item = (Group, u32)> + '_ {
        // One that goes meanwhile is missed, and so may others be: the next look has them.
        self.numbers.iter().flatten().filter_map(|(key, number)| Some((Group::read_from_bytes(&key).ok()?, number)))
    }

    /// Lets a group go: packets that would be in it are in a new one. Programs may still be about to write to the old one.
    ///
    /// # Errors
    /// The kernel's refusal to write the map.
    pub fn remove(&mut self, group: &Group) -> Result<(), MapError> {
        self.numbers.remove(&bytes(group))
    }

    /// Gives programs a number for the next new group.
    ///
    /// # Errors
    /// The kernel's refusal to write the map.
    pub fn give(&mut self, number: u32) -> Result<(), MapError> {
        self.free.push(number, 0)
    }

    /// The name that an interface had when its first group came to be; `None` where no program could tell.
    #[must_use]
    pub fn name(&self, interface: Interface) -> Option<String> {
        let name = self.names.get(&bytes(&interface), 0).ok()?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        Some(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// Lets an interface's name go.
    pub fn forget(&mut self, interface: Interface) {
        // Of some no program could tell it.
        drop(self.names.remove(&bytes(&interface)));
    }
}
