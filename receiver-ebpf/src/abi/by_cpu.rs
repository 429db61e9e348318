//! Maps with an entry for each CPU.

/// An entry of such a map. It has cache lines of its own: another CPU that writes to a line would take it away.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Entry<T>(pub T);

const _: () = assert!(size_of::<Entry<u64>>() == 64);
