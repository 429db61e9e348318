//! Which packets programs measure.

use aya::maps::{Array, MapData, MapError};

use crate::config::Weight;

/// Tells programs how many packets stand for one that they measure.
pub struct Sample {
    mask: Array<MapData, u64>,
    weight: Weight,
}

impl Sample {
    /// Takes charge of the map that holds the mask. Every packet is measured.
    pub(super) const fn new(mask: Array<MapData, u64>) -> Self {
        Self { mask, weight: Weight::ONE }
    }

    /// How many packets stand for one that is measured.
    #[must_use]
    pub const fn weight(&self) -> Weight {
        self.weight
    }

    /// Sets that. What was left out before stays so at layers that a packet reaches later.
    ///
    /// # Errors
    /// The kernel's refusal to write the map.
    pub fn set(&mut self, weight: Weight) -> Result<(), MapError> {
        self.mask.set(0, u64::from(weight.get()) - 1, 0)?;
        self.weight = weight;
        Ok(())
    }
}
