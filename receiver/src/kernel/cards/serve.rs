//! The hook that sees cards' stamps: served while a card stamps packets.

use super::{Cards, Clocks, Following, Found, PLACES, Places};
use crate::kernel::{Kernel, KernelError, Types, attach, handles::missing, hooks, is_needed, resolved, stamp_packets};

impl Kernel {
    /// Takes note of the cards that stamp packets now. The first of them makes the hook be served that sees their stamps,
    /// and the last one's end frees it.
    ///
    /// # Errors
    /// Where the kernel's types cannot be read, which serving a hook takes.
    pub fn note_cards(&mut self, found: Found) -> Result<(), KernelError> {
        self.found_cards = found;
        let hook = &hooks::DRIVER;
        if is_needed(hook, &self.found_cards) {
            if self.outcomes.iter().all(|outcome| outcome.hook != hook.name) {
                self.timestamping = self.timestamping.take().or_else(|| stamp_packets([hook].into_iter()));
                let types = Types(resolved::types_of(&[hook])?);
                self.serve(&types, &[hook]);
            }
        } else {
            let programs = hook.alternates.iter().flat_map(|alternate| alternate.programs);
            programs.for_each(|program| attach::detach(&mut self.ebpf, program));
            self.outcomes.retain(|outcome| outcome.hook != hook.name);
        }
        Ok(())
    }

    /// What was found of cards that stamp packets.
    #[must_use]
    pub const fn found_cards(&self) -> &Found {
        &self.found_cards
    }

    /// What is said of the cards that are followed.
    #[must_use]
    pub fn cards(&self) -> Cards {
        Cards::clone(&self.cards)
    }

    /// Follows the clocks of those cards.
    ///
    /// # Errors
    /// Where the maps cannot be had, or this process's namespace cannot be told.
    pub fn follow_cards(&mut self) -> Result<Following, KernelError> {
        let clocks = self.card_clocks()?;
        let following = Following::new(self.card_places()?, clocks, self.cards());
        let mut following = following.map_err(KernelError::Namespace)?;
        following.follow(&self.found_cards);
        Ok(following)
    }

    /// The places of cards, by their interfaces.
    ///
    /// # Errors
    /// Where the map cannot be had.
    pub fn card_places(&mut self) -> Result<Places, KernelError> {
        let map = self.ebpf.take_map(PLACES).ok_or_else(|| missing(PLACES))?;
        Places::new(map).map_err(|source| KernelError::Map { map: PLACES, source: Box::new(source) })
    }

    /// What programs know of cards' clocks.
    ///
    /// # Errors
    /// Where the map cannot be mapped.
    pub fn card_clocks(&self) -> Result<Clocks, KernelError> {
        Ok(Clocks::new(self.mapped(super::CLOCKS, Clocks::WORDS)?))
    }
}
