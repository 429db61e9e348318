//! A packet leaves its driver for the stack, with the card's stamp where the card gave it one.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use undercurrent_ebpf::abi::{driver::DriverLoss, filter::Criterion, interface::Interface, workload::Slot};

use super::subject::arriving;
use crate::{
    kernel::{
        event::departs,
        fields::{
            DEVICE_INDEX, DEVICE_NET, NET_INODE, SHARED_FLAGS, SHARED_STAMP, SKB_DEVICE, SKB_END, SKB_HEAD, SKB_TSTAMP,
        },
        filter,
        owner::{self, or_node},
        pointer::Typed,
    },
    signals::receive_driver,
};

/// `SKBTX_HW_TSTAMP_NETDEV` (6.0 and later): the driver has its own notes in the place of the stamp, and brings them to a
/// time when somebody asks.
const DRIVER_NOTES: u8 = 1 << 5;

/// Tracepoint `netif_receive_skb(struct sk_buff *skb)`, 5.10 to 7.3: after GRO, and after the kernel has stamped the packet.
#[btf_tracepoint(function = "netif_receive_skb")]
fn netif_receive_skb(ctx: BtfTracePointContext) -> i32 {
    let skb: *const u8 = ctx.arg(0);
    // SAFETY: argument 0 is a packet that has its device; every kernel has these fields.
    unsafe {
        let device = SKB_DEVICE.load(skb) as *const u8;
        let namespace = NET_INODE.load(DEVICE_NET.load(device) as *const u8);
        let interface = Interface { namespace, index: DEVICE_INDEX.load(device) };
        // What comes in by another interface may bear a stamp too: that of the card that it came in by first.
        let Some(card) = receive_driver::card(interface) else { return 0 };
        // What packets share stands where the buffer ends.
        let shared = SKB_HEAD.load(skb).wrapping_add(u64::from(SKB_END.load(skb))) as *const u8;
        let stamp = SHARED_STAMP.probe(shared);
        if stamp == 0 {
            return 0;
        }
        let packet = Typed::new(skb);
        let chosen = chosen(packet);
        if chosen == Some(false) {
            return 0;
        }
        let received = if departs(packet) { 0 } else { SKB_TSTAMP.load(skb) };
        if chosen.is_none() {
            receive_driver::lost(card, DriverLoss::Unfiltered);
        } else if SHARED_FLAGS.probe(shared) & DRIVER_NOTES != 0 {
            receive_driver::lost(card, DriverLoss::DriverNotes);
        } else {
            receive_driver::left(card, stamp, received);
        }
    }
    0
}

/// Whether the filter chooses a packet, a `sk_buff` that has its device; `None` where that cannot be told so early.
#[inline(always)]
fn chosen(packet: Typed) -> Option<bool> {
    let slot = || owner::slot_of_namespace(packet);
    let slot = if filter::asks_for(Criterion::Workload) { or_node(slot) } else { Slot::NODE };
    filter::chooses_all(filter::chooses(&arriving(packet)), slot)
}
