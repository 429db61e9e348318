//! What the kernel side and user space share: the layout of every map value, and nothing else.
//!
//! Neither face depends on the other's machinery: this library has no aya in it, and the programs beside it
//! (`main.rs`) have no user space in them.
#![no_std]

pub mod abi;
