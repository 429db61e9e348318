//! The hook that sees the timestamps of NICs: served while a NIC timestamps packets.

use super::{Clocks, Following, NicIndices, NicInventory, Nics};
use crate::kernel::{Kernel, KernelError, client::ServiceError};

impl Kernel {
    /// Searches the NICs that timestamp packets, and follows what was found.
    ///
    /// # Errors
    /// If the kernel's types cannot be read, which attaching needs.
    pub fn search_nics(&mut self) -> Result<&NicInventory, ServiceError> {
        let found = self.client.find_nics()?;
        self.note_nics(found)?;
        Ok(&self.found_nics)
    }

    /// Notes the NICs that timestamp packets now. The first of them attaches the hook of their timestamps, and the end of
    /// the last one detaches it.
    ///
    /// # Errors
    /// If the kernel's types cannot be read, which attaching needs.
    pub fn note_nics(&mut self, found: NicInventory) -> Result<(), ServiceError> {
        if found != self.found_nics {
            self.found_nics = found.clone();
            self.outcomes = self.client.note_nics(found)?;
        }
        Ok(())
    }

    /// The NICs that timestamp packets.
    #[must_use]
    pub const fn found_nics(&self) -> &NicInventory {
        &self.found_nics
    }

    /// What is known of the NICs that are followed.
    #[must_use]
    pub fn nics(&self) -> Nics {
        Nics::clone(&self.nics)
    }

    /// Follows the clocks of those NICs.
    ///
    /// # Errors
    /// If a map cannot be mapped, or this process's network namespace is unknown.
    pub fn follow_nics(&self) -> Result<Following, KernelError> {
        let following = Following::new(self.client.clone(), self.nic_indices(), self.nic_clocks()?, self.nics());
        let mut following = following.map_err(KernelError::Namespace)?;
        following.follow(&self.found_nics);
        Ok(following)
    }

    /// The places of NICs, by their interfaces.
    #[must_use]
    pub fn nic_indices(&self) -> NicIndices {
        NicIndices::new(self.client.clone())
    }

    /// The conversions of NIC clocks that programs read.
    ///
    /// # Errors
    /// If the map cannot be mapped.
    pub fn nic_clocks(&self) -> Result<Clocks, KernelError> {
        Ok(Clocks::new(self.mapped(super::CLOCKS, Clocks::WORDS)?))
    }
}
