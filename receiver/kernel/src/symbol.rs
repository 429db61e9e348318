//! Symbols of the eBPF object in messages between processes.

use serde::{Deserialize, Deserializer};

/// A symbol of the eBPF object. `serde` would borrow a field of the type `&str` from the message.
pub type Symbol = &'static str;

/// Deserializes a symbol, and keeps it until the process ends: a loader receives its settings once.
///
/// # Errors
/// If the message is malformed.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Symbol, D::Error> {
    String::deserialize(deserializer).map(|symbol| &*symbol.leak())
}
