//! What hooks can tell of a packet to those who choose some.

use aya_ebpf::{bindings::__sk_buff, helpers::bpf_probe_read_kernel};

use crate::kernel::{
    fields::{
        DEVICE_INDEX, DEVICE_NET, NET_INODE, SKB_DEVICE, SKB_HEAD, SKB_INTERFACE, SKB_LENGTH, SKB_PAGED_LENGTH, SKB_SK,
        SKB_TRANSPORT_HEADER, SOCK_INTERFACE, SOCK_NET, SOCK_PORT, SOCK_PROTOCOL, SOCK_QUEUE, UDP_READER_QUEUE,
    },
    filter::{Subject, current_process},
    owner,
};

use super::IPPROTO_UDP;

/// Where TCP's and UDP's headers have the destination's port.
const DESTINATION: u64 = 2;
/// Bytes of both ports.
const PORTS: u32 = 4;

/// A packet on its way in, a typed `sk_buff` that has its device.
pub struct Arriving(pub *const u8);

impl Subject for Arriving {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        // SAFETY: by the type; every kernel has these fields.
        Some(unsafe { NET_INODE.load(DEVICE_NET.load(SKB_DEVICE.load(self.0) as *const u8) as *const u8) })
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        // SAFETY: as above.
        Some(unsafe { DEVICE_INDEX.load(SKB_DEVICE.load(self.0) as *const u8) })
    }

    #[inline(always)]
    fn device(&self) -> Option<*const u8> {
        // SAFETY: as above.
        Some(unsafe { SKB_DEVICE.load(self.0) } as *const u8)
    }
}

/// A packet that enters its transport protocol, a typed `sk_buff` that has its device.
pub struct Entering(pub *const u8);

impl Subject for Entering {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        Arriving(self.0).namespace()
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        Arriving(self.0).interface()
    }

    #[inline(always)]
    fn device(&self) -> Option<*const u8> {
        Arriving(self.0).device()
    }

    #[inline(always)]
    fn port(&self) -> Option<u16> {
        // Its data begins at the header, which may be in a page until the protocol has looked at it.
        // SAFETY: by the type; every kernel has these fields.
        let linear = unsafe { SKB_LENGTH.load(self.0) - SKB_PAGED_LENGTH.load(self.0) };
        // SAFETY: as above.
        if linear < PORTS { None } else { unsafe { destination(self.0) } }
    }
}

/// The port that a received packet is for, as its header says.
///
/// # Safety
/// `skb` is a typed `sk_buff` pointer.
#[inline(always)]
unsafe fn destination(skb: *const u8) -> Option<u16> {
    // SAFETY: by the caller; the helper checks the address itself.
    unsafe {
        let header = SKB_HEAD.load(skb) + u64::from(SKB_TRANSPORT_HEADER.load(skb));
        bpf_probe_read_kernel((header + DESTINATION) as *const u16).ok().map(u16::from_be)
    }
}

/// A packet that its socket is about to receive, the context of a program in the cgroup's path.
pub struct Filtered(pub *const __sk_buff);

impl Subject for Filtered {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        // SAFETY: the context of a packet that has its device.
        unsafe { owner::packet(self.0.cast()) }.and_then(|skb| Arriving(skb).namespace())
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        // SAFETY: a field of the context.
        Some(unsafe { (*self.0).ifindex })
    }

    #[inline(always)]
    fn device(&self) -> Option<*const u8> {
        // SAFETY: as for `namespace`.
        unsafe { owner::packet(self.0.cast()) }.and_then(|skb| Arriving(skb).device())
    }

    #[inline(always)]
    fn port(&self) -> Option<u16> {
        // SAFETY: as for `namespace`.
        let sock = unsafe { owner::receiving_socket(self.0.cast()) }?;
        // SAFETY: a typed socket.
        Some(unsafe { SOCK_PORT.load(sock) })
    }

    #[inline(always)]
    fn queue(&self) -> Option<u32> {
        // SAFETY: as above.
        let sock = unsafe { owner::receiving_socket(self.0.cast()) }?;
        // SAFETY: as above. What UDP's readers have taken over is beyond a program of this kind.
        Some(unsafe { SOCK_QUEUE.load(sock) })
    }
}

/// A packet in its socket's queue: both are typed, a `sock` and an `sk_buff`.
pub struct InSocket {
    pub sock: *const u8,
    pub skb: *const u8,
}

impl Subject for InSocket {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        // SAFETY: by the type; every kernel has these fields.
        Some(unsafe { NET_INODE.load(SOCK_NET.load(self.sock) as *const u8) })
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        // SAFETY: as above. The device itself may be gone.
        Some(unsafe { SKB_INTERFACE.load(self.skb) })
    }

    #[inline(always)]
    fn port(&self) -> Option<u16> {
        // SAFETY: as above.
        Some(unsafe { SOCK_PORT.load(self.sock) })
    }

    #[inline(always)]
    fn queue(&self) -> Option<u32> {
        // SAFETY: as above.
        unsafe {
            let length = SOCK_QUEUE.load(self.sock);
            if SOCK_PROTOCOL.load(self.sock) != IPPROTO_UDP.into() {
                return Some(length);
            }
            // UDP's readers take over all of the queue at once (`__skb_recv_udp`).
            Some(length + UDP_READER_QUEUE.probe(self.sock))
        }
    }
}

/// A packet that the current task reads.
pub struct Read(pub InSocket);

impl Subject for Read {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        self.0.namespace()
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        self.0.interface()
    }

    #[inline(always)]
    fn port(&self) -> Option<u16> {
        self.0.port()
    }

    #[inline(always)]
    fn queue(&self) -> Option<u32> {
        self.0.queue()
    }

    #[inline(always)]
    fn process(&self) -> Option<u32> {
        Some(current_process())
    }
}

/// What the current task reads of a TCP socket, a typed `sock`: its packets may be gone.
pub struct Stream(pub *const u8);

impl Stream {
    #[inline(always)]
    const fn socket(&self) -> InSocket {
        InSocket { sock: self.0, skb: core::ptr::null() }
    }
}

impl Subject for Stream {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        self.socket().namespace()
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        // SAFETY: by the type, and the field is checked for.
        if SOCK_INTERFACE.present() { Some(unsafe { SOCK_INTERFACE.load(self.0) }) } else { None }
    }

    #[inline(always)]
    fn port(&self) -> Option<u16> {
        self.socket().port()
    }

    #[inline(always)]
    fn queue(&self) -> Option<u32> {
        // SAFETY: by the type.
        Some(unsafe { SOCK_QUEUE.load(self.0) })
    }

    #[inline(always)]
    fn process(&self) -> Option<u32> {
        Some(current_process())
    }
}

/// A packet whose bytes the current task reads, a typed `sk_buff`. TCP's alone know their sockets.
pub struct Copied(pub *const u8);

impl Copied {
    /// The packet's socket, where it has one.
    #[inline(always)]
    fn socket(&self) -> Option<InSocket> {
        // SAFETY: by the type; the verifier knows what the field points to.
        let sock = unsafe { SKB_SK.load(self.0) } as *const u8;
        if sock.is_null() { None } else { Some(InSocket { sock, skb: self.0 }) }
    }
}

impl Subject for Copied {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        self.socket()?.namespace()
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        // SAFETY: by the type.
        Some(unsafe { SKB_INTERFACE.load(self.0) })
    }

    #[inline(always)]
    fn port(&self) -> Option<u16> {
        // SAFETY: by the type.
        unsafe { destination(self.0) }
    }

    #[inline(always)]
    fn queue(&self) -> Option<u32> {
        // SAFETY: by the type; of a packet's socket that is none of UDP's.
        self.socket().map(|socket| unsafe { SOCK_QUEUE.load(socket.sock) })
    }

    #[inline(always)]
    fn process(&self) -> Option<u32> {
        Some(current_process())
    }
}
