//! Functions that the user names: any that takes a packet.

mod packet;

use aya_ebpf::{
    macros::{fentry, kprobe},
    programs::{FEntryContext, ProbeContext},
};
use undercurrent_ebpf::abi::{ABSENT, latency::Network, workload::Slot};

use self::packet::{Alone, Entered};
use super::{
    ETH_P_IP, ETH_P_IPV6,
    arguments::{argument, register},
};
use crate::{
    kernel::{
        event::PacketEvent,
        fields::SKB_PROTOCOL,
        filter::Subject,
        pointer::{Pointer, Typed, Untyped},
        set_outside,
    },
    signals::extra_latency,
};

/// The IP version by an Ethertype. What is of neither is not what the layers speak of.
#[inline(always)]
fn network(protocol: u16) -> Option<Network> {
    match protocol {
        ETH_P_IP => Some(Network::Ipv4),
        ETH_P_IPV6 => Some(Network::Ipv6),
        _ => None,
    }
}

/// A function is entered with a packet, a typed `sk_buff`, and a typed `sock` or null. All programs call this one piece of
/// code: inlined it would be most of the object.
#[inline(never)]
fn entered(skb: *const u8, sock: *const u8, layer: usize) {
    // SAFETY: the packet and its socket.
    let packet = unsafe { Entered { skb: Typed::new(skb), sock: Typed::new(sock) } };
    reached(packet.skb, &packet, layer, || packet.slot());
}

/// The same where the packet is only known to be somewhere.
#[inline(never)]
fn probed(skb: *const u8, layer: usize) {
    let packet = Alone(Untyped(skb));
    reached(packet.0, &packet, layer, || packet.slot());
}

/// A layer is reached by a `sk_buff`.
#[inline(always)]
fn reached(skb: impl Pointer, packet: &impl Subject, layer: usize, slot: impl FnOnce() -> Slot) {
    if let Some(network) = network(skb.read(&SKB_PROTOCOL)) {
        extra_latency::reached(layer, network, packet, PacketEvent::arrived(skb), slot);
    }
}

/// Two programs for each layer, of which one is attached: its number, their names, and the globals that say at which place
/// the function has its packet, its socket ([`ABSENT`] where it has none), and in which register its packet.
macro_rules! programs {
    ($($layer:literal $entry:ident $probe:ident $packet:literal $socket:literal $register:literal;)+) => {$(
        #[fentry]
        fn $entry(ctx: FEntryContext) -> i32 {
            #[unsafe(export_name = $packet)]
            #[unsafe(link_section = ".rodata.flags")]
            static PACKET: u32 = 0;
            #[unsafe(export_name = $socket)]
            #[unsafe(link_section = ".rodata.flags")]
            static SOCKET: u32 = ABSENT;
            let none = set_outside(&SOCKET) == ABSENT;
            let sock = if none { core::ptr::null() } else { argument(&ctx, &SOCKET) };
            entered(argument(&ctx, &PACKET), sock, $layer);
            0
        }

        #[kprobe]
        fn $probe(ctx: ProbeContext) -> u32 {
            #[unsafe(export_name = $register)]
            #[unsafe(link_section = ".rodata.flags")]
            static REGISTER: u32 = 0;
            probed(register(&ctx, &REGISTER), $layer);
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
