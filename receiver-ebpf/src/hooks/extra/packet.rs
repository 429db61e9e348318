//! Attributes of a packet at a function that the user names.

use undercurrent_ebpf::abi::workload::Slot;

use super::super::{
    socket::is_fullsock,
    subject::{InSocket, arriving},
};
use crate::kernel::{
    fields::{SkBuff, Sock},
    filter::Subject,
    owner,
    pointer::{Access, Ptr, Typed},
};

/// A packet, and its socket or null. The packet may have left its device, as TCP's packets have at their socket: its `dev` is
/// null then, and the fields of null read as zero.
pub struct Entered {
    pub skb: Ptr<SkBuff>,
    pub sock: Ptr<Sock>,
}

impl Entered {
    /// Returns the packet with its socket, if the function has a full socket.
    #[inline(always)]
    fn in_socket(&self) -> Option<InSocket<Typed>> {
        if is_fullsock(self.sock) { Some(InSocket { sock: self.sock, skb: self.skb }) } else { None }
    }

    /// Returns the slot of the socket's owner, or else of the packet's network namespace.
    #[inline(always)]
    pub fn slot(&self) -> Slot {
        match self.in_socket() {
            Some(socket) => owner::slot_of_owner(socket.sock),
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

/// A packet without a socket. It may have left its device.
pub struct Alone<A>(pub Ptr<SkBuff, A>);

impl<A: Access> Alone<A> {
    /// Returns the slot of the packet's network namespace.
    #[inline(always)]
    pub fn slot(&self) -> Slot {
        owner::slot_of_namespace(self.0)
    }
}

impl<A: Access> Subject for Alone<A> {
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
