//! Network interfaces.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An interface. Its index is local to its network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Interface {
    /// The inode of the namespace.
    pub namespace: u32,
    /// The index of the interface.
    pub index: u32,
}

/// Bytes of an interface's name, with the terminating zero (`IFNAMSIZ`).
pub const NAME: usize = 16;

const _: () = assert!(size_of::<Interface>() == 8);
