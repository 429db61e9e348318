//! Control of the programs that select slow packets.

use std::time::Duration;

use super::{
    client::{Client, ServiceError},
    messages::Variable,
};

/// The limits of selected packets, fixed at load time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLimits {
    /// Nanoseconds between two events of slow packets.
    pub interval: u32,
    /// Nanoseconds between two events of the uniform share.
    pub uniform_interval: u32,
    /// The bits of a timestamp's mix that are zero in packets of the uniform share.
    pub uniform_mask: u32,
    /// True if programs read the payload of selected packets.
    pub inspects: bool,
    /// True if programs pass only the value of `traceparent` in HTTP/1.
    pub searches: bool,
    /// True if wakeups of readers are recorded.
    pub reader_states: bool,
}

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
