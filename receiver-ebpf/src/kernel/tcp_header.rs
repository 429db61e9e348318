//! The header of a TCP segment that a `cgroup_skb` program sees.

use core::arch::asm;

use undercurrent_ebpf::abi::latency::IpVersion;

use super::{context::SkbContext, tcp::IPPROTO_TCP};

/// Bytes of a TCP header without options.
const TCP_HEADER: usize = 20;
/// Bytes of an IPv4 header without options.
const IPV4_HEADER: usize = 20;
/// Bytes of an IPv6 header.
const IPV6_HEADER: usize = 40;

/// The numbers of a TCP header.
#[derive(Clone, Copy)]
pub struct TcpHeader {
    /// The sequence number of the first byte.
    pub sequence: u32,
    /// The number of the next byte that the sender expects, if the flag [`TcpHeader::ACK`] is set.
    pub acknowledged: u32,
    /// The number of bytes after the header.
    pub data: u32,
    /// The flags.
    pub flags: u8,
}

impl TcpHeader {
    /// The sender has sent everything.
    pub const FIN: u8 = 1;
    /// The first segment of a direction.
    pub const SYN: u8 = 2;
    /// The sender ends the connection.
    pub const RST: u8 = 4;
    /// `acknowledged` is valid.
    pub const ACK: u8 = 16;

    /// Reads the header of a segment; `None` for an IP header with options.
    #[inline(always)]
    pub fn of(skb: SkbContext, version: IpVersion) -> Option<Self> {
        match version {
            IpVersion::Ipv4 => {
                let headers = skb.bytes::<{ IPV4_HEADER + TCP_HEADER }>()?;
                if headers[0] == 0x45 { Some(Self::at(skb, headers, IPV4_HEADER)) } else { None }
            }
            IpVersion::Ipv6 => {
                let headers = skb.bytes::<{ IPV6_HEADER + TCP_HEADER }>()?;
                if headers[6] == IPPROTO_TCP { Some(Self::at(skb, headers, IPV6_HEADER)) } else { None }
            }
        }
    }

    /// Reads a header at an offset.
    #[inline(always)]
    fn at<const LENGTH: usize>(skb: SkbContext, headers: &[u8; LENGTH], tcp: usize) -> Self {
        let number = |at: usize| u32::from_be(load(headers, tcp + at));
        let header = u32::from(headers[tcp + 12] >> 4) * 4;
        Self {
            sequence: number(4),
            acknowledged: number(8),
            data: skb.length().saturating_sub(tcp as u32 + header),
            flags: headers[tcp + 13],
        }
    }

    /// Returns true if one of these flags is set.
    #[inline(always)]
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Returns the sequence number after the data.
    #[inline(always)]
    pub const fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.data)
    }
}

/// Returns the offset from the IP header of four bytes that translation of addresses keeps: the sequence number of TCP, or the length and the
/// checksum of UDP, of packets without IP options.
#[inline(always)]
pub const fn distinct_bytes(version: IpVersion) -> usize {
    match version {
        IpVersion::Ipv4 => IPV4_HEADER + 4,
        IpVersion::Ipv6 => IPV6_HEADER + 4,
    }
}

/// Reads the bytes at [`distinct_bytes`]; `None` if the linear data is shorter.
#[inline(always)]
pub fn distinct(skb: SkbContext, version: IpVersion) -> Option<u32> {
    match version {
        IpVersion::Ipv4 => Some(load(skb.bytes::<{ IPV4_HEADER + 8 }>()?, distinct_bytes(IpVersion::Ipv4))),
        IpVersion::Ipv6 => Some(load(skb.bytes::<{ IPV6_HEADER + 8 }>()?, distinct_bytes(IpVersion::Ipv6))),
    }
}

/// Loads four bytes at a constant offset. The compiler would load each byte, since it does not know that the kernel accepts any alignment.
#[inline(always)]
fn load<const LENGTH: usize>(bytes: &[u8; LENGTH], at: usize) -> u32 {
    let bytes = &bytes[at..at + size_of::<u32>()];
    let word: u64;
    // SAFETY: four bytes of the slice.
    unsafe {
        asm!("{} = *(u32 *)({} + 0)", out(reg) word, in(reg) bytes.as_ptr(), options(pure, readonly, nostack));
    }
    word as u32
}
