//! A packet that a function has, and what can be told of it.

use undercurrent_ebpf::abi::workload::Slot;

use super::super::{
    owner::is_whole,
    subject::{Arriving, InSocket},
};
use crate::kernel::{
    fields::{DEVICE_INDEX, DEVICE_NET, NET_INODE, SKB_DEVICE},
    filter::Subject,
    owner,
};

/// A typed `sk_buff`, and a typed `sock` or null. The packet may have left its device, as TCP's have at their socket:
/// fields of a null are zero.
pub struct Entered {
    pub skb: *const u8,
    pub sock: *const u8,
}

impl Entered {
    /// The packet in its socket, where the function has a whole one in hand.
    #[inline(always)]
    fn in_socket(&self) -> Option<InSocket> {
        // SAFETY: by the type.
        if unsafe { is_whole(self.sock) } { Some(InSocket { sock: self.sock, skb: self.skb }) } else { None }
    }

    /// The slot of the socket's owner, else of the packet's network namespace.
    #[inline(always)]
    pub fn slot(&self) -> Slot {
        match self.in_socket() {
            // SAFETY: a typed and trusted socket.
            Some(socket) => unsafe { owner::slot_of_owner(socket.sock) },
            // SAFETY: by the type.
            None => unsafe { owner::slot_of_namespace(self.skb) },
        }
    }
}

impl Subject for Entered {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        match self.in_socket() {
            Some(socket) => socket.namespace(),
            None => Arriving(self.skb).namespace().filter(|inode| *inode != 0),
        }
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        match self.in_socket() {
            Some(socket) => socket.interface(),
            None => Arriving(self.skb).interface().filter(|index| *index != 0),
        }
    }

    #[inline(always)]
    fn port(&self) -> Option<u16> {
        self.in_socket()?.port()
    }

    #[inline(always)]
    fn queue(&self) -> Option<u32> {
        self.in_socket()?.queue()
    }
}

/// A `sk_buff` that is only known to be somewhere. No program gets at a socket's reader from there.
pub struct Probed(pub *const u8);

impl Probed {
    /// The slot of the packet's network namespace.
    #[inline(always)]
    pub fn slot(&self) -> Slot {
        owner::slot_of_inode(self.inode())
    }

    #[inline(always)]
    fn inode(&self) -> u32 {
        NET_INODE.probe(DEVICE_NET.probe(SKB_DEVICE.probe(self.0) as *const u8) as *const u8)
    }
}

impl Subject for Probed {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        Some(self.inode()).filter(|inode| *inode != 0)
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        Some(DEVICE_INDEX.probe(SKB_DEVICE.probe(self.0) as *const u8)).filter(|index| *index != 0)
    }
}
