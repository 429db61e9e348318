//! Everything that knows the kernel.

pub mod btf;
pub mod fields;
