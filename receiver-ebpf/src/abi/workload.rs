//! Whose a measurement is, as both sides know it.

/// The place of a workload in every table that is kept by workload. User space assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Slot(pub u16);

impl Slot {
    /// The node: what belongs to no workload.
    pub const NODE: Self = Self(0);
    /// The workloads beyond the limit, together.
    pub const OVERFLOW: Self = Self(1);
    /// The first slot of a workload of its own.
    pub const FIRST: Self = Self(2);
}
