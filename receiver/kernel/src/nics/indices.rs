//! The indices of NICs in the maps of the programs.

use undercurrent_ebpf::abi::interface::Interface;
use zerocopy::IntoBytes as _;

use crate::{
    client::{Client, ServiceError},
    messages::Table,
};

/// The map from interfaces to the indices of NICs.
pub struct NicIndices(Client);

impl NicIndices {
    /// Creates a writer of the map.
    pub(super) const fn new(client: Client) -> Self {
        Self(client)
    }

    /// Sets the index of an interface's NIC.
    ///
    /// # Errors
    /// If the kernel refuses to write the map.
    pub fn insert(&self, interface: Interface, index: usize) -> Result<(), ServiceError> {
        self.0.insert(Table::NicIndices, interface.as_bytes(), &(index as u32).to_ne_bytes())
    }

    /// Removes the index of an interface's NIC, if it has one.
    pub fn remove(&self, interface: Interface) {
        drop(self.0.remove(Table::NicIndices, interface.as_bytes()));
    }
}
