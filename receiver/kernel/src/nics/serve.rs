//! The hook for NIC timestamps, which is attached only while a NIC timestamps packets.

use super::{Clocks, Following, NicIndices, NicInventory, Nics};
use crate::{
    Kernel, KernelError,
    client::ServiceError,
    messages::{FindNics, NoteNics},
};

impl Kernel {
    /// Searches NICs that timestamp packets, and attaches or detaches the hook accordingly.
    ///
    /// # Errors
    /// If the kernel's BTF, which attaching needs, cannot be read.
    pub fn search_nics(&mut self) -> Result<&NicInventory, ServiceError> {
        let found = self.client.call(FindNics {})?;
        self.note_nics(found)?;
        Ok(&self.found_nics)
    }

    /// Records the NICs that timestamp packets. The hook is attached while there is at least one.
    ///
    /// # Errors
    /// If the kernel's BTF, which attaching needs, cannot be read.
    pub fn note_nics(&mut self, found: NicInventory) -> Result<(), ServiceError> {
        if found != self.found_nics {
            self.found_nics = found.clone();
            self.outcomes = self.client.call(NoteNics { found })?;
        }
        Ok(())
    }

    /// Returns the NICs that timestamp packets.
    #[must_use]
    pub const fn found_nics(&self) -> &NicInventory {
        &self.found_nics
    }

    /// Returns the state of the followed NICs.
    #[must_use]
    pub fn nics(&self) -> Nics {
        Nics::clone(&self.nics)
    }

    /// Follows the clocks of the NICs that timestamp packets.
    ///
    /// # Errors
    /// If a map cannot be mapped, or this process's network namespace is unknown.
    pub fn follow_nics(&self) -> Result<Following, KernelError> {
        let following = Following::new(self.client.clone(), self.nic_indices(), self.nic_clocks()?, self.nics());
        let mut following = following.map_err(KernelError::Namespace)?;
        following.follow(&self.found_nics);
        Ok(following)
    }

    /// Returns the map from interfaces to the indices of NICs.
    #[must_use]
    pub fn nic_indices(&self) -> NicIndices {
        NicIndices::new(self.client.clone())
    }

    /// Returns the map of conversions from NIC clocks to the wall clock.
    ///
    /// # Errors
    /// If the map cannot be mapped.
    pub fn nic_clocks(&self) -> Result<Clocks, KernelError> {
        Ok(Clocks::new(self.mapped(super::CLOCKS, Clocks::WORDS)?))
    }
}
