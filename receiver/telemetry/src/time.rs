//! Times of the wall clock.

use std::time::{Duration, SystemTime};

/// Nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub u64);

impl UnixNanos {
    /// Returns the current wall-clock time.
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }
}

impl From<SystemTime> for UnixNanos {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<UnixNanos> for SystemTime {
    fn from(time: UnixNanos) -> Self {
        Self::UNIX_EPOCH + Duration::from_nanos(time.0)
    }
}
