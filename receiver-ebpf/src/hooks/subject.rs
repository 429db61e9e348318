//! Attributes of packets at each hook, for filters and groups.

use undercurrent_ebpf::abi::latency::IpVersion;

use crate::kernel::{
    context::SkbContext,
    field::read_at,
    fields::{
        DEVICE_INDEX, DEVICE_NAME, DEVICE_NET, MsgHdr, NET_INODE, SHARED_SEGMENTS, SKB_DEVICE, SKB_END, SKB_HASH,
        SKB_HEAD, SKB_INTERFACE, SKB_LENGTH, SKB_PAGED_LENGTH, SKB_SK, SKB_TRANSPORT_HEADER, SOCK_INTERFACE, SOCK_NET,
        SOCK_PORT, SOCK_PROTOCOL, SOCK_QUEUE, SkBuff, SkbSharedInfo, Sock, UDP_READER_QUEUE, UdpSock,
    },
    filter::{Subject, current_process},
    payload::{self, Buffer},
    pointer::{Access, Probed, Ptr, Typed},
    tcp_header,
    unread::Segment,
};

use super::{IPPROTO_UDP, socket::is_inet};

/// Offset of the destination port in the headers of TCP and UDP.
const DESTINATION: u64 = 2;
/// Bytes of both ports.
const PORTS: u32 = 4;

/// A packet that has its device, and a function that returns its local port.
struct OnDevice<A, F>(Ptr<SkBuff, A>, F);

impl<A: Access, F: Fn(Ptr<SkBuff, A>) -> Option<u16>> Subject for OnDevice<A, F> {
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

    #[inline(always)]
    fn identity(&self) -> Option<u64> {
        Some(packet_identity(self.0))
    }

    #[inline(always)]
    fn segments(&self) -> u32 {
        // A packet of several segments has most of them in pages or in further buffers.
        if self.0.read(&SKB_PAGED_LENGTH) == 0 {
            return 1;
        }
        let end = self.0.read(&SKB_HEAD).wrapping_add(u64::from(self.0.read(&SKB_END)));
        let shared: Ptr<SkbSharedInfo, Probed> = Ptr::at(end);
        u32::from(shared.read(&SHARED_SEGMENTS)).max(1)
    }

    #[inline(always)]
    fn bytes(&self, _: IpVersion) -> u32 {
        self.0.read(&SKB_LENGTH)
    }
}

/// A received packet that has its device, before its transport protocol.
#[inline(always)]
pub fn arriving<A: Access>(skb: Ptr<SkBuff, A>) -> impl Subject {
    #[inline(always)]
    fn unknown<A>(_: Ptr<SkBuff, A>) -> Option<u16> {
        None
    }
    OnDevice(skb, unknown)
}

/// A received packet that has its device, at the entry of its transport protocol.
#[inline(always)]
pub fn entering<A: Access>(skb: Ptr<SkBuff, A>) -> impl Subject {
    #[inline(always)]
    fn port<A: Access>(skb: Ptr<SkBuff, A>) -> Option<u16> {
        // The data begins at the transport header. It may be in a page until the protocol pulls it into the linear buffer.
        let linear = skb.read(&SKB_LENGTH) - skb.read(&SKB_PAGED_LENGTH);
        if linear < PORTS { None } else { destination(skb) }
    }
    OnDevice(skb, port)
}

/// A packet to send that has its device.
#[inline(always)]
pub fn outgoing(skb: Ptr<SkBuff>) -> impl Subject {
    #[inline(always)]
    fn port(skb: Ptr<SkBuff>) -> Option<u16> {
        let sock = skb.follow(&SKB_SK);
        if !sock.is_null() && is_inet(sock) { Some(sock.read(&SOCK_PORT)) } else { None }
    }
    OnDevice(skb, port)
}

/// Returns the destination port in a received packet's transport header.
#[inline(always)]
fn destination<A: Access>(skb: Ptr<SkBuff, A>) -> Option<u16> {
    let header = skb.read(&SKB_HEAD) + u64::from(skb.read(&SKB_TRANSPORT_HEADER));
    read_at(header + DESTINATION).map(u16::from_be)
}

/// A packet at its receiving socket, in a `cgroup_skb` program.
pub struct Filtered(pub SkbContext);

impl Subject for Filtered {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        arriving(self.0.packet()?).namespace()
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        Some(self.0.interface())
    }

    #[inline(always)]
    fn interface_name(&self) -> Option<[u64; 2]> {
        arriving(self.0.packet()?).interface_name()
    }

    #[inline(always)]
    fn port(&self) -> Option<u16> {
        Some(self.0.kernel_socket()?.read(&SOCK_PORT))
    }

    #[inline(always)]
    fn identity(&self) -> Option<u64> {
        self.0.packet().map(packet_identity)
    }

    #[inline(always)]
    fn distinct(&self, version: IpVersion) -> Option<u32> {
        tcp_header::distinct(self.0, version)
    }

    #[inline(always)]
    fn segments(&self) -> u32 {
        self.0.segments().max(1)
    }

    #[inline(always)]
    fn bytes(&self, version: IpVersion) -> u32 {
        // The length begins at the IP header. Options and extension headers, which are rare, count as data.
        let header = match version {
            IpVersion::Ipv4 => 20,
            IpVersion::Ipv6 => 40,
        };
        self.0.length().saturating_sub(header)
    }

    #[inline(always)]
    fn address(&self) -> u64 {
        self.0.packet().map_or(0, |skb| skb.identity())
    }

    #[inline(always)]
    fn has_storage(&self) -> bool {
        true
    }

    #[inline(always)]
    fn queue(&self) -> Option<u32> {
        // Without UDP's reader queue: programs of this type have no helper to read it.
        Some(self.0.kernel_socket()?.read(&SOCK_QUEUE))
    }
}

/// A packet in its socket's queue.
pub struct InSocket<A> {
    pub sock: Ptr<Sock, A>,
    pub skb: Ptr<SkBuff, A>,
}

impl<A: Access> Subject for InSocket<A> {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        Some(namespace(self.sock))
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        // The packet keeps the index after its device is gone.
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
        // A reader of UDP moves the whole receive queue to its reader queue (`__skb_recv_udp`).
        Some(length + self.sock.probed().cast::<UdpSock>().read(&UDP_READER_QUEUE))
    }

    #[inline(always)]
    fn address(&self) -> u64 {
        self.skb.identity()
    }

    #[inline(always)]
    fn has_storage(&self) -> bool {
        A::TRUSTED
    }
}

/// Returns the address of a packet, combined with the hash of its flow: addresses are reused.
#[inline(always)]
pub fn packet_identity<A: Access>(skb: Ptr<SkBuff, A>) -> u64 {
    skb.identity() ^ u64::from(skb.read(&SKB_HASH)) << 32
}

/// Returns the inode of a socket's network namespace.
#[inline(always)]
fn namespace<A: Access>(sock: Ptr<Sock, A>) -> u32 {
    sock.follow(&SOCK_NET).read(&NET_INODE)
}

/// A packet that the current task reads.
pub struct Read<A>(pub InSocket<A>);

impl<A: Access> Subject for Read<A> {
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

    #[inline(always)]
    fn origin(&self) -> (Ptr<Sock, Probed>, Ptr<SkBuff, Probed>) {
        (Ptr::at(0), self.0.skb.probed())
    }

    #[inline(always)]
    fn address(&self) -> u64 {
        self.0.address()
    }

    #[inline(always)]
    fn has_storage(&self) -> bool {
        self.0.has_storage()
    }
}

/// Data that the current task reads from a TCP socket. Its packets may be freed. The message is the destination of the read, or null. The
/// segment is the last one in order.
pub struct Stream<A>(pub Ptr<Sock, A>, pub Ptr<MsgHdr, Probed>, pub Segment);

impl<A: Access> Subject for Stream<A> {
    #[inline(always)]
    fn namespace(&self) -> Option<u32> {
        Some(namespace(self.0))
    }

    #[inline(always)]
    fn interface(&self) -> Option<u32> {
        self.0.get(&SOCK_INTERFACE)
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

    #[inline(always)]
    fn origin(&self) -> (Ptr<Sock, Probed>, Ptr<SkBuff, Probed>) {
        (self.0.probed(), Ptr::at(0))
    }

    #[inline(always)]
    fn payload(&self, to: *mut Buffer) -> u32 {
        payload::of_message(self.1, to)
    }

    #[inline(always)]
    fn has_storage(&self) -> bool {
        A::TRUSTED
    }

    #[inline(always)]
    fn last_segment(&self) -> Segment {
        self.2
    }
}

/// A packet that is copied to the current task, and the last segment in order of its connection. Only TCP's packets have their socket.
pub struct Copied(pub Ptr<SkBuff>, pub Segment);

impl Copied {
    #[inline(always)]
    fn socket(&self) -> Option<Stream<Typed>> {
        self.0.follow(&SKB_SK).non_null().map(|sock| Stream(sock, Ptr::at(0), self.1))
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
        // A TCP socket, so it has no reader queue.
        self.socket()?.queue()
    }

    #[inline(always)]
    fn process(&self) -> Option<u32> {
        Some(current_process())
    }

    #[inline(always)]
    fn origin(&self) -> (Ptr<Sock, Probed>, Ptr<SkBuff, Probed>) {
        (Ptr::at(0), self.0.probed())
    }

    #[inline(always)]
    fn payload(&self, to: *mut Buffer) -> u32 {
        if self.0.follow(&SKB_SK).is_null() { 0 } else { payload::of_packet(self.0, to) }
    }

    #[inline(always)]
    fn address(&self) -> u64 {
        self.0.identity()
    }

    #[inline(always)]
    fn has_storage(&self) -> bool {
        true
    }

    #[inline(always)]
    fn last_segment(&self) -> Segment {
        self.1
    }
}
