//! Functions that the user names: any that takes a packet.
//!
//! Where a function has its packet, the loader finds out and sets; the verifier knows the place for a constant then, and
//! so the argument's type.

use core::arch::asm;

use aya_ebpf::{EbpfContext as _, macros::fentry, programs::FEntryContext};
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

/// A word of the context that holds an argument.
#[inline(always)]
fn argument(ctx: &FEntryContext, place: &'static u32) -> *const u8 {
    const { assert!(extra::WORDS == 6) };
    let context = ctx.as_ptr();
    // Read here and no earlier: what waits on the stack is a constant no more.
    match set_outside(place) {
        0 => word!(context, 0),
        1 => word!(context, 8),
        2 => word!(context, 16),
        3 => word!(context, 24),
        4 => word!(context, 32),
        5 => word!(context, 40),
        _ => core::ptr::null(),
    }
}

/// A function is entered with a packet, and perhaps a socket, at these places of its arguments. What is of neither IP
/// version is not what the layers speak of.
#[inline(always)]
fn entered(ctx: &FEntryContext, layer: usize, packet: &'static u32, socket: &'static u32) {
    let skb = argument(ctx, packet);
    // SAFETY: the packet; every kernel has the Ethertype.
    let network = match unsafe { SKB_PROTOCOL.load(skb) } {
        ETH_P_IP => Network::Ipv4,
        ETH_P_IPV6 => Network::Ipv6,
        _ => return,
    };
    // SAFETY: the packet.
    let event = unsafe { PacketEvent::undelivered(skb) };
    extra_latency::reached(layer, network, event, || slot_of(ctx, skb, socket));
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

/// A program for each layer: its number, its name, and the globals that say where the function has the packet and the
/// socket ([`ABSENT`] where it has none).
macro_rules! programs {
    ($($layer:literal $name:ident $packet:literal $socket:literal;)+) => {$(
        #[fentry]
        fn $name(ctx: FEntryContext) -> i32 {
            #[unsafe(export_name = $packet)]
            #[unsafe(link_section = ".rodata.flags")]
            static PACKET: u32 = 0;
            #[unsafe(export_name = $socket)]
            #[unsafe(link_section = ".rodata.flags")]
            static SOCKET: u32 = ABSENT;
            entered(&ctx, $layer, &PACKET, &SOCKET);
            0
        }
    )+};
}

programs! {
    0 extra_0 "extra.0.packet" "extra.0.socket";
    1 extra_1 "extra.1.packet" "extra.1.socket";
    2 extra_2 "extra.2.packet" "extra.2.socket";
    3 extra_3 "extra.3.packet" "extra.3.socket";
    4 extra_4 "extra.4.packet" "extra.4.socket";
    5 extra_5 "extra.5.packet" "extra.5.socket";
    6 extra_6 "extra.6.packet" "extra.6.socket";
    7 extra_7 "extra.7.packet" "extra.7.socket";
}
