//! Control of the programs that select slow packets.

use std::time::Duration;

use super::{
    client::{Client, ServiceError},
    messages::Variable,
};

/// Sets the threshold of slow packets.
pub struct SlowThreshold(Client);

impl SlowThreshold {
    pub(super) const fn new(client: Client) -> Self {
        Self(client)
    }

    /// Selects packets that take longer than a threshold.
    ///
    /// # Errors
    /// If the loader cannot be reached, or the kernel refuses.
    pub fn set(&self, threshold: Duration) -> Result<(), ServiceError> {
        self.0.set(Variable::SlowThreshold, u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX >> 1))
    }
}
