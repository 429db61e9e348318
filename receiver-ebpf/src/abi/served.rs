//! Hooks that record packets for later hooks. A later hook skips its lookup if the earlier hook is not attached.

/// The bit of the hook at which packets enter their sockets' queues.
pub const ENQUEUED: u64 = 1;
/// The bit of the programs for datagrams at the hook of readers: the programs at copies to the application learn the readers of
/// connections.
pub const READERS: u64 = 4;
/// The bit of the hook at which UDP sends.
pub const SENT: u64 = 2;
