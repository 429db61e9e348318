//! Helpers that the developer commands share.
//!
//! Without the feature `full`, the library contains only the modules that `cargo xtask run` uses.

pub mod about;
#[cfg(feature = "full")]
pub mod artifacts;
pub mod cargo;
#[cfg(feature = "full")]
pub mod hash;
pub mod machine;
#[cfg(feature = "full")]
pub mod packages;
#[cfg(feature = "full")]
pub mod process;
#[cfg(feature = "full")]
pub mod tally;
#[cfg(feature = "full")]
pub mod tools;
pub mod traffic;
#[cfg(feature = "full")]
pub mod truth;
