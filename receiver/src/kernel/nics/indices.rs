//! The places that programs keep the timestamps of NICs in.

use undercurrent_ebpf::abi::interface::Interface;
use zerocopy::IntoBytes as _;

use crate::kernel::{
    client::{Client, ServiceError},
    service::Table,
};

/// The places of NICs, by their interfaces.
pub struct NicIndices(Client);

impl NicIndices {
    /// The places that programs look up.
    pub(super) const fn new(client: Client) -> Self {
        Self(client)
    }

    /// Gives the NIC of an interface a place.
    ///
    /// # Errors
    /// The kernel's refusal to write the map.
    pub fn insert(&self, interface: Interface, place: usize) -> Result<(), ServiceError> {
        self.0.insert(Table::NicIndices, interface.as_bytes(), &(place as u32).to_ne_bytes())
    }

    /// Frees the place of a NIC that has one.
    pub fn remove(&self, interface: Interface) {
        drop(self.0.remove(Table::NicIndices, interface.as_bytes()));
    }
}
