//! Hooks that programs of others look for traces of, which is in vain where nothing serves them.

/// The bit of the hook where packets enter their sockets' queues.
pub const ENQUEUED: u64 = 1;
/// The bit of the hook where UDP sends.
pub const SENT: u64 = 2;
