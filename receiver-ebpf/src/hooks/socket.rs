//! Sockets and the protocols of their packets.

use undercurrent_ebpf::abi::{
    latency::{IpVersion, Transport},
    workload::Slot,
};

use super::{ETH_P_IP, ETH_P_IPV6, IPPROTO_UDP};
use crate::kernel::{
    field::read_at,
    fields::{SKB_HEAD, SKB_NETWORK_HEADER, SOCK_FAMILY, SOCK_STATE, SOCK_V6_DADDR, SkBuff, Sock},
    owner,
    pointer::{Access, Ptr},
    tcp::{IPPROTO_TCP, state},
};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Returns true if a socket's family is IPv4 or IPv6.
#[inline(always)]
pub fn is_inet(sock: Ptr<Sock>) -> bool {
    matches!(sock.read(&SOCK_FAMILY), AF_INET | AF_INET6)
}

/// Returns true for a full IPv4 or IPv6 socket; false for null, a request socket or a time-wait socket (the kernel's
/// `sk_fullsock`).
#[inline(always)]
pub fn is_fullsock(sock: Ptr<Sock>) -> bool {
    // Some verifiers treat the argument as never null and remove this check; fields of null read as zero then.
    if sock.is_null() {
        return false;
    }
    is_inet(sock) && !matches!(sock.read(&SOCK_STATE), state::TIME_WAIT | state::NEW_SYN_RECV)
}

/// Returns the slot of a trusted socket's owner; `None` if it is no full IPv4 or IPv6 socket.
#[inline(always)]
pub fn slot_of_owner(sock: Ptr<Sock>) -> Option<Slot> {
    if is_fullsock(sock) { Some(owner::slot_of_owner(sock)) } else { None }
}

/// Returns the IP version of a socket's packets. On a dual-stack socket it can differ from the socket's family.
#[inline(always)]
pub fn peer_ip_version<A: Access>(sock: Ptr<Sock, A>) -> IpVersion {
    if sock.read(&SOCK_FAMILY) != AF_INET6 {
        return IpVersion::Ipv4;
    }
    let Some([high, low]) = sock.get(&SOCK_V6_DADDR) else { return IpVersion::Ipv4 };
    let mapped = high == 0 && u64::from_be(low) >> 32 == 0xffff;
    if mapped { IpVersion::Ipv4 } else { IpVersion::Ipv6 }
}

/// Returns the transport protocol that a packet's IP header names.
#[inline(always)]
pub fn transport_in_header(skb: Ptr<SkBuff>, protocol: u16) -> Option<Transport> {
    let offset = match protocol {
        ETH_P_IP => 9,
        ETH_P_IPV6 => 6,
        _ => return None,
    };
    let header = skb.read(&SKB_HEAD) + u64::from(skb.read(&SKB_NETWORK_HEADER));
    transport(read_at::<u8>(header + offset)?.into())
}

/// Returns the transport protocol of an IP protocol number.
#[inline(always)]
pub fn transport(number: u16) -> Option<Transport> {
    const TCP: u16 = IPPROTO_TCP as u16;
    const UDP: u16 = IPPROTO_UDP as u16;
    match number {
        TCP => Some(Transport::Tcp),
        UDP => Some(Transport::Udp),
        _ => None,
    }
}
