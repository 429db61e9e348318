//! A packet that a function has, and what can be told of it.

use undercurrent_ebpf::abi::workload::Slot;

use super::super::{
    owner::is_whole,
    subject::{InSocket, arriving},
};
use crate::kernel::{
    filter::Subject,
    owner,
    pointer::{Pointer, Typed},
};

/// A `sk_buff`, and a `sock` or null. The packet may have left its device, as TCP's have at their socket: fields of a null
/// are zero.
pub struct Entered {
    pub skb: Typed,
    pub sock: Typed,
}

impl Entered {
    /// The packet in its socket, where the function has a whole one in hand.
    #[inline(always)]
    fn in_socket(&self) -> Option<InSocket<Typed>> {
        // SAFETY: by the type.
        let whole = unsafe { is_whole(self.sock.address()) };
        if whole { Some(InSocket { sock: self.sock, skb: self.skb }) } else { None }
    }

    /// The slot of the socket's owner, else of the packet's network namespace.
    #[inline(always)]
    pub fn slot(&self) -> Slot {
        match self.in_socket() {
            // SAFETY: a typed and trusted socket.
            Some(socket) => unsafe { owner::slot_of_owner(socket.sock.address()) },
            None => Alone(self.skb).slot(),
        }
    }
}

impl Subject for Entered {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        match self.in_socket() {
            Some(socket) => socket.namespace(),
            None => Alone(self.skb).namespace(),
        }
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        match self.in_socket() {
            Some(socket) => socket.interface(),
            None => Alone(self.skb).interface(),
        }
    }

    #[inline(always)]
    fn interface_name(&self) -> Option<[u64; 2]> {
        Alone(self.skb).interface_name()
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

/// A `sk_buff` alone, which may have left its device as well.
pub struct Alone<P>(pub P);

impl<P: Pointer> Alone<P> {
    /// The slot of the packet's network namespace.
    #[inline(always)]
    pub fn slot(&self) -> Slot {
        owner::slot_of_namespace(self.0)
    }
}

impl<P: Pointer> Subject for Alone<P> {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        arriving(self.0).namespace().filter(|inode| *inode != 0)
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        arriving(self.0).interface().filter(|index| *index != 0)
    }

    #[inline(always)]
    fn interface_name(&self) -> Option<[u64; 2]> {
        arriving(self.0).interface_name().filter(|name| name[0] != 0)
    }
}
