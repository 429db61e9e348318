//! What hooks can tell of a packet to those who choose some.

use aya_ebpf::{bindings::__sk_buff, helpers::bpf_probe_read_kernel};

use crate::kernel::{
    fields::{
        DEVICE_INDEX, DEVICE_NAME, DEVICE_NET, NET_INODE, SKB_DEVICE, SKB_HEAD, SKB_INTERFACE, SKB_LENGTH,
        SKB_PAGED_LENGTH, SKB_SK, SKB_TRANSPORT_HEADER, SOCK_INTERFACE, SOCK_NET, SOCK_PORT, SOCK_PROTOCOL, SOCK_QUEUE,
        UDP_READER_QUEUE,
    },
    filter::{Subject, current_process},
    owner,
    pointer::{Pointer, Typed},
};

use super::{IPPROTO_UDP, owner::is_internet};

/// Where TCP's and UDP's headers have the destination's port.
const DESTINATION: u64 = 2;
/// Bytes of both ports.
const PORTS: u32 = 4;

/// A `sk_buff` that has its device, and what tells its local port there.
struct OnDevice<P, F>(P, F);

impl<P: Pointer, F: Fn(P) -> Option<u16>> Subject for OnDevice<P, F> {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        Some(self.0.follow(&SKB_DEVICE).follow(&DEVICE_NET).read(&NET_INODE))
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        Some(self.0.follow(&SKB_DEVICE).read(&DEVICE_INDEX))
    }

    #[inline(always)]
    fn interface_name(&self) -> Option<[u64; 2]> {
        Some(self.0.follow(&SKB_DEVICE).read(&DEVICE_NAME))
    }

    #[inline(always)]
    fn port(&self) -> Option<u16> {
        (self.1)(self.0)
    }
}

/// A packet on its way in, a `sk_buff` that has its device.
#[inline(always)]
pub fn arriving<P: Pointer>(skb: P) -> impl Subject {
    #[inline(always)]
    fn unknown<P>(_: P) -> Option<u16> {
        None
    }
    OnDevice(skb, unknown)
}

/// A packet that enters its transport protocol, a `sk_buff` that has its device.
#[inline(always)]
pub fn entering<P: Pointer>(skb: P) -> impl Subject {
    #[inline(always)]
    fn port(skb: impl Pointer) -> Option<u16> {
        // Its data begins at the header, which may be in a page until the protocol has looked at it.
        let linear = skb.read(&SKB_LENGTH) - skb.read(&SKB_PAGED_LENGTH);
        if linear < PORTS { None } else { destination(skb) }
    }
    OnDevice(skb, port)
}

/// A packet on its way out, a `sk_buff` that has its device.
#[inline(always)]
pub fn departing(skb: Typed) -> impl Subject {
    #[inline(always)]
    fn port(skb: Typed) -> Option<u16> {
        let sock = skb.follow(&SKB_SK);
        // SAFETY: a typed socket, or null.
        let internet = !sock.address().is_null() && unsafe { is_internet(sock.address()) };
        if internet { Some(sock.read(&SOCK_PORT)) } else { None }
    }
    OnDevice(skb, port)
}

/// The port that a received `sk_buff` is for, as its header says.
#[inline(always)]
fn destination(skb: impl Pointer) -> Option<u16> {
    let header = skb.read(&SKB_HEAD) + u64::from(skb.read(&SKB_TRANSPORT_HEADER));
    // SAFETY: the helper checks the address itself.
    unsafe { bpf_probe_read_kernel((header + DESTINATION) as *const u16) }.ok().map(u16::from_be)
}

/// A packet that its socket is about to receive, the context of a program in the cgroup's path.
pub struct Filtered(pub *const __sk_buff);

impl Subject for Filtered {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        // SAFETY: the context of a packet that has its device.
        unsafe { owner::packet(self.0.cast()).and_then(|skb| arriving(Typed::new(skb)).namespace()) }
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        // SAFETY: a field of the context.
        Some(unsafe { (*self.0).ifindex })
    }

    #[inline(always)]
    fn interface_name(&self) -> Option<[u64; 2]> {
        // SAFETY: as for `namespace`.
        unsafe { owner::packet(self.0.cast()).and_then(|skb| arriving(Typed::new(skb)).interface_name()) }
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

/// A packet in its socket's queue, a `sock` and a `sk_buff`.
pub struct InSocket<P> {
    pub sock: P,
    pub skb: P,
}

impl<P: Pointer> Subject for InSocket<P> {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        Some(namespace(self.sock))
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        // The device itself may be gone.
        Some(self.skb.read(&SKB_INTERFACE))
    }

    #[inline(always)]
    fn port(&self) -> Option<u16> {
        Some(self.sock.read(&SOCK_PORT))
    }

    #[inline(always)]
    fn queue(&self) -> Option<u32> {
        let length = self.sock.read(&SOCK_QUEUE);
        if self.sock.read(&SOCK_PROTOCOL) != IPPROTO_UDP.into() {
            return Some(length);
        }
        // UDP's readers take over all of the queue at once (`__skb_recv_udp`).
        Some(length + UDP_READER_QUEUE.probe(self.sock.address()))
    }
}

/// The inode of a `sock`'s network namespace.
#[inline(always)]
fn namespace(sock: impl Pointer) -> u32 {
    sock.follow(&SOCK_NET).read(&NET_INODE)
}

/// A packet that the current task reads.
pub struct Read<P>(pub InSocket<P>);

impl<P: Pointer> Subject for Read<P> {
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

/// What the current task reads of a TCP socket, a `sock`: its packets may be gone.
pub struct Stream<P>(pub P);

impl<P: Pointer> Subject for Stream<P> {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        Some(namespace(self.0))
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        if SOCK_INTERFACE.present() { Some(self.0.read(&SOCK_INTERFACE)) } else { None }
    }

    #[inline(always)]
    fn port(&self) -> Option<u16> {
        Some(self.0.read(&SOCK_PORT))
    }

    #[inline(always)]
    fn queue(&self) -> Option<u32> {
        Some(self.0.read(&SOCK_QUEUE))
    }

    #[inline(always)]
    fn process(&self) -> Option<u32> {
        Some(current_process())
    }
}

/// A packet whose bytes the current task reads, a `sk_buff`. TCP's alone know their sockets.
pub struct Copied(pub Typed);

impl Copied {
    /// The packet's socket, where it has one.
    #[inline(always)]
    fn socket(&self) -> Option<Stream<Typed>> {
        // The verifier knows what the field points to.
        let sock = self.0.follow(&SKB_SK);
        if sock.address().is_null() { None } else { Some(Stream(sock)) }
    }
}

impl Subject for Copied {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        self.socket()?.namespace()
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        Some(self.0.read(&SKB_INTERFACE))
    }

    #[inline(always)]
    fn port(&self) -> Option<u16> {
        destination(self.0)
    }

    #[inline(always)]
    fn queue(&self) -> Option<u32> {
        // It is none of UDP's.
        self.socket()?.queue()
    }

    #[inline(always)]
    fn process(&self) -> Option<u32> {
        Some(current_process())
    }
}
