//! Functions that the user names: any that takes a packet.
//!
//! Where a function has its packet, the loader finds out and sets; the verifier knows the place for a constant then, and
//! so the argument's type.

use core::arch::asm;

use aya_ebpf::{
    EbpfContext as _,
    macros::{fentry, kprobe},
    programs::{FEntryContext, ProbeContext},
};
use undercurrent_ebpf::abi::{ABSENT, extra, latency::Network, workload::Slot};

use super::{ETH_P_IP, ETH_P_IPV6, owner::slot_of_whole};
use crate::{
    kernel::{event::PacketEvent, fields::SKB_PROTOCOL, owner, set_outside},
    signals::extra_latency,
};

/// A word of a context, at a distance in bytes that stands in the instruction: the verifier takes no other. Not `pure`, or
/// words that are not there would be read ahead of time.
macro_rules! word {
    ($context:expr, $distance:literal) => {{
        let word: *const u8;
        // SAFETY: an argument of the context, which the verifier checks.
        unsafe { asm!(concat!("{} = *(u64 *)({} + ", $distance, ")"), out(reg) word, in(reg) $context, options(nostack)) };
        word
    }};
}

/// The word of a context at a place that the loader sets, of these places.
macro_rules! word_at {
    ($context:expr, $place:expr, $($word:literal at $distance:literal),+) => {{
        let context = $context;
        // Read here and no earlier: what waits on the stack is a constant no more.
        match set_outside($place) {
            $($word => word!(context, $distance),)+
            _ => core::ptr::null(),
        }
    }};
}

/// An argument, which the context has in its words.
#[inline(always)]
fn argument(ctx: &FEntryContext, place: &'static u32) -> *const u8 {
    const { assert!(extra::ARGUMENTS == 6) };
    word_at!(ctx.as_ptr(), place, 0 at 0, 1 at 8, 2 at 16, 3 at 24, 4 at 32, 5 at 40)
}

/// An argument, which the context has among the processor's registers: the places of those that pass the first six on
/// x86-64 (8, 9 and 11 to 14) and aarch64 (0 to 5).
#[inline(always)]
fn register(ctx: &ProbeContext, place: &'static u32) -> *const u8 {
    word_at!(
        ctx.as_ptr(), place,
        0 at 0, 1 at 8, 2 at 16, 3 at 24, 4 at 32, 5 at 40, 8 at 64, 9 at 72, 11 at 88, 12 at 96, 13 at 104, 14 at 112
    )
}

/// The IP version by an Ethertype. What is of neither is not what the layers speak of.
#[inline(always)]
fn network(protocol: u16) -> Option<Network> {
    match protocol {
        ETH_P_IP => Some(Network::Ipv4),
        ETH_P_IPV6 => Some(Network::Ipv6),
        _ => None,
    }
}

/// A function is entered with a packet, and perhaps a socket, at these places of its arguments.
#[inline(always)]
fn entered(ctx: &FEntryContext, layer: usize, packet: &'static u32, socket: &'static u32) {
    let skb = argument(ctx, packet);
    // SAFETY: the packet; every kernel has the Ethertype.
    if let Some(network) = network(unsafe { SKB_PROTOCOL.load(skb) }) {
        // SAFETY: the packet.
        let event = unsafe { PacketEvent::undelivered(skb) };
        extra_latency::reached(layer, network, event, || slot_of(ctx, skb, socket));
    }
}

/// The same where the packet is only known to be somewhere. No program gets at a socket's reader from there.
#[inline(always)]
fn probed(ctx: &ProbeContext, layer: usize, packet: &'static u32) {
    let skb = register(ctx, packet);
    if let Some(network) = network(SKB_PROTOCOL.probe(skb)) {
        let slot = || owner::slot_of_probed_namespace(skb);
        extra_latency::reached(layer, network, PacketEvent::probed(skb), slot);
    }
}

/// The slot of the socket's owner, where the function has one in hand, else of the packet's network namespace. A packet
/// that has left its device, as TCP's have at their socket, has neither's where there is no socket.
#[inline(always)]
fn slot_of(ctx: &FEntryContext, skb: *const u8, socket: &'static u32) -> Slot {
    if set_outside(socket) != ABSENT
        // SAFETY: a typed argument.
        && let Some(slot) = unsafe { slot_of_whole(argument(ctx, socket)) }
    {
        return slot;
    }
    // SAFETY: the packet; fields of a null are zero.
    unsafe { owner::slot_of_namespace(skb) }
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
            entered(&ctx, $layer, &PACKET, &SOCKET);
            0
        }

        #[kprobe]
        fn $probe(ctx: ProbeContext) -> u32 {
            #[unsafe(export_name = $register)]
            #[unsafe(link_section = ".rodata.flags")]
            static REGISTER: u32 = 0;
            probed(&ctx, $layer, &REGISTER);
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
