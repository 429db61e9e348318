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

/// Declares two programs for each layer: the layer's number, the programs' names, and three symbols. The symbols are the indices of
/// the packet and of the socket ([`ABSENT`] if there is none) among the arguments, and of the packet among the registers.
macro_rules! programs {
    ($($layer:literal $entry:ident $probe:ident $packet:literal $socket:literal $register:literal;)+) => {$(
        #[fentry]
        fn $entry(ctx: FEntryContext) -> i32 {
            constants! {
                PACKET = $packet;
                SOCKET = $socket, ABSENT;
            }
            let absent = SOCKET.get() == ABSENT;
            let sock = if absent { Ptr::null() } else { argument(&ctx, &SOCKET) };
            entered(argument(&ctx, &PACKET), sock, $layer);
            0
        }

        #[kprobe]
        fn $probe(ctx: ProbeContext) -> u32 {
            constants! {
                REGISTER = $register;
            }
            probed(Ptr::at(register(&ctx, &REGISTER)), $layer);
            0
        }
    )+};
}

programs! {
    0 extra_0 extra_0_probe "extra.0.packet" "extra.0.socket" "extra.0.register";
    1 extra_1 extra_1_probe "extra.1.packet" "extra.1.socket" "extra.1.register";
    2 extra_2 extra_2_probe "extra.2.packet" "extra.2.socket" "extra.2.register";
    3 extra_3 extra_3_probe "extra.3.packet" "extra.3.socket" "extra.3.register";
    4 extra_4 extra_4_probe "extra.4.packet" "extra.4.socket" "extra.4.register";
    5 extra_5 extra_5_probe "extra.5.packet" "extra.5.socket" "extra.5.register";
    6 extra_6 extra_6_probe "extra.6.packet" "extra.6.socket" "extra.6.register";
    7 extra_7 extra_7_probe "extra.7.packet" "extra.7.socket" "extra.7.register";
}
