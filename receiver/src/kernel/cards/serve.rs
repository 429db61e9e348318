//! The hook that sees the timestamps of NICs: served while a NIC timestamps packets.

use super::{Cards, Clocks, Following, Found, Places};
use crate::kernel::{Kernel, KernelError, client::ServiceError};

impl Kernel {
    /// Searches the NICs that timestamp packets, and follows what was found.
    ///
    /// # Errors
    /// If the kernel's types cannot be read, which attaching needs.
    pub fn search_cards(&mut self) -> Result<&Found, ServiceError> {
        let found = self.client.find_cards()?;
        self.note_cards(found)?;
        Ok(&self.found_cards)
    }

    /// Notes the NICs that timestamp packets now. The first of them attaches the hook of their timestamps, and the end of
    /// the last one detaches it.
    ///
    /// # Errors
    /// If the kernel's types cannot be read, which attaching needs.
    pub fn note_cards(&mut self, found: Found) -> Result<(), ServiceError> {
        if found != self.found_cards {
            self.found_cards = found.clone();
            self.outcomes = self.client.note_cards(found)?;
        }
        Ok(())
    }

    /// The NICs that timestamp packets.
    #[must_use]
    pub const fn found_cards(&self) -> &Found {
        &self.found_cards
    }

    /// What is known of the NICs that are followed.
    #[must_use]
    pub fn cards(&self) -> Cards {
        Cards::clone(&self.cards)
    }

    /// Follows the clocks of those NICs.
    ///
    /// # Errors
    /// If a map cannot be mapped, or this process's network namespace is unknown.
    pub fn follow_cards(&self) -> Result<Following, KernelError> {
        let following = Following::new(self.client.clone(), self.card_places(), self.card_clocks()?, self.cards());
        let mut following = following.map_err(KernelError::Namespace)?;
        following.follow(&self.found_cards);
        Ok(following)
    }

    /// The places of NICs, by their interfaces.
    #[must_use]
    pub fn card_places(&self) -> Places {
        Places::new(self.client.clone())
    }

    /// The conversions of NIC clocks that programs read.
    ///
    /// # Errors
    /// If the map cannot be mapped.
    pub fn card_clocks(&self) -> Result<Clocks, KernelError> {
        Ok(Clocks::new(self.mapped(super::CLOCKS, Clocks::WORDS)?))
    }
}
