//! The places that programs keep cards' stamps in.

use aya::maps::{HashMap, MapData, MapError};
use undercurrent_ebpf::abi::interface::Interface;

use super::super::maps::bytes;

/// The places of cards, by their interfaces.
pub struct Places(HashMap<MapData, [u8; size_of::<Interface>()], u32>);

impl Places {
    /// Takes charge of the map.
    ///
    /// # Errors
    /// Where it is of another kind.
    pub(super) fn new(map: aya::maps::Map) -> Result<Self, MapError> {
        Ok(Self(map.try_into()?))
    }

    /// Gives an interface's card a place.
    ///
    /// # Errors
    /// The kernel's refusal to write the map.
    pub fn insert(&mut self, interface: Interface, place: usize) -> Result<(), MapError> {
        self.0.insert(bytes(&interface), place as u32, 0)
    }

    /// Takes the place back. Of a card that has none, nothing is.
    pub fn remove(&mut self, interface: Interface) {
        drop(self.0.remove(&bytes(&interface)));
    }
}
