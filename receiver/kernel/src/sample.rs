//! The sampling of packets.

use super::{
    client::{Client, ServiceError},
    messages::Variable,
};
use crate::options::Weight;

/// Sets the sampling weight: the number of packets that one measured packet represents.
pub struct Sample {
    client: Client,
    weight: Weight,
}

impl Sample {
    /// Creates a sample that measures all packets.
    pub(super) const fn new(client: Client) -> Self {
        Self { client, weight: Weight::ONE }
    }

    /// Returns the number of packets that one measured packet represents.
    #[must_use]
    pub const fn weight(&self) -> Weight {
        self.weight
    }

    /// Sets the weight. A packet that an earlier layer skipped is skipped by later layers too.
    ///
    /// # Errors
    /// If the kernel refuses to write the map.
    pub fn set(&mut self, weight: Weight) -> Result<(), ServiceError> {
        self.client.set(Variable::Sample, u64::from(weight.get()) - 1)?;
        self.weight = weight;
        Ok(())
    }
}
