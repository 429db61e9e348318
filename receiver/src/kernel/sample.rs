//! Which packets programs measure.

use super::{
    client::{Client, ServiceError},
    service::Variable,
};
use crate::options::Weight;

/// Tells programs how many packets stand for one that they measure.
pub struct Sample {
    client: Client,
    weight: Weight,
}

impl Sample {
    /// Every packet is measured.
    pub(super) const fn new(client: Client) -> Self {
        Self { client, weight: Weight::ONE }
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
    pub fn set(&mut self, weight: Weight) -> Result<(), ServiceError> {
        self.client.set(Variable::Sample, u64::from(weight.get()) - 1)?;
        self.weight = weight;
        Ok(())
    }
}
