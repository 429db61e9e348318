//! Network interfaces, as both sides know them.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An interface, which has its number within its network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Interface {
    /// The namespace's inode.
    pub namespace: u32,
    /// The interface's index there.
    pub index: u32,
}

/// Bytes of an interface's name, a zero at its end included (`IFNAMSIZ`).
pub const NAME: usize = 16;

const _: () = assert!(size_of::<Interface>() == 8);
