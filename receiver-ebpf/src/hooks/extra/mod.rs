//! Layers that the user names: functions with a packet among their arguments.

mod packet;

use aya_ebpf::{
    macros::{fentry, kprobe},
    programs::{FEntryContext, ProbeContext},
};
use undercurrent_ebpf::abi::{ABSENT, latency::IpVersion, workload::Slot};

use self::packet::{Alone, Entered};
use super::{
    ETH_P_IP, ETH_P_IPV6,
    arguments::{argument, register},
};
use crate::{
    kernel::{
        constant::constants,
        event::PacketEvent,
        fields::{SKB_PROTOCOL, SkBuff, Sock},
        filter::Subject,
        pointer::{Access, Probed, Ptr},
    },
    signals::extra_latency,
};

/// Returns the IP version of an Ethertype; `None` for other protocols, which the layers do not cover.
#[inline(always)]
fn ip_version(protocol: u16) -> Option<IpVersion> {
    match protocol {
        ETH_P_IP => Some(IpVersion::Ipv4),
        ETH_P_IPV6 => Some(IpVersion::Ipv6),
        _ => None,
    }
}

/// Handles the entry of a function with a packet, and a socket or null. All programs call this function: inlined copies would
/// be most of the object.
#[inline(never)]
fn entered(skb: Ptr<SkBuff>, sock: Ptr<Sock>, layer: usize) {
    let packet = Entered { skb, sock };
    reached(skb, &packet, layer, || packet.slot());
}

/// Handles the entry of a function with a packet, for a kprobe.
#[inline(never)]
fn probed(skb: Ptr<SkBuff, Probed>, layer: usize) {
    let packet = Alone(skb);
    reached(skb, &packet, layer, || packet.slot());
}

#[inline(always)]
fn reached<A: Access>(skb: Ptr<SkBuff, A>, packet: &impl Subject, layer: usize, slot: impl FnOnce() -> Slot) {
    if let Some(version) = ip_version(skb.read(&SKB_PROTOCOL)) {
        extra_latency::reached(layer, version, packet, PacketEvent::arrived(skb), slot);
    }
}

/// Declares the two programs of each layer. The loader sets the constants of a layer, whose symbols have its number: the indices of
/// the packet and of the socket ([`ABSENT`] if there is none) among the arguments, and of the packet among the registers.
macro_rules! programs {
    ($($layer:literal $entry:ident $probe:ident;)+) => {$(
        #[fentry]
        fn $entry(ctx: FEntryContext) -> i32 {
            constants! {
                PACKET = concat!("extra.", $layer, ".packet");
                SOCKET = concat!("extra.", $layer, ".socket"), ABSENT;
            }
            let absent = SOCKET.get() == ABSENT;
            let sock = if absent { Ptr::null() } else { argument(&ctx, &SOCKET) };
            entered(argument(&ctx, &PACKET), sock, $layer);
            0
        }

        #[kprobe]
        fn $probe(ctx: ProbeContext) -> u32 {
            constants! {
                REGISTER = concat!("extra.", $layer, ".register");
            }
            probed(Ptr::at(register(&ctx, &REGISTER)), $layer);
            0
        }
    )+};
}

programs! {
    0 extra_0 extra_0_probe;
    1 extra_1 extra_1_probe;
    2 extra_2 extra_2_probe;
    3 extra_3 extra_3_probe;
    4 extra_4 extra_4_probe;
    5 extra_5 extra_5_probe;
    6 extra_6 extra_6_probe;
    7 extra_7 extra_7_probe;
}
