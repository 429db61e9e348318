//! A packet leaves its driver for the network stack, possibly with a timestamp of the NIC.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use undercurrent_ebpf::abi::{driver::DriverLoss, filter::Criterion, interface::Interface, workload::Slot};

use super::subject::arriving;
use crate::{
    kernel::{
        context::Arguments as _,
        event::has_departure_time,
        fields::{
            DEVICE_INDEX, DEVICE_NET, NET_INODE, SHARED_HWTSTAMP, SHARED_TX_FLAGS, SKB_DEVICE, SKB_END, SKB_HEAD,
            SKB_TSTAMP, SkBuff, SkbSharedInfo,
        },
        filter,
        owner::{self, or_node},
        pointer::{Probed, Ptr},
    },
    signals::receive_driver,
};

/// `SKBTX_HW_TSTAMP_NETDEV` (6.0 and later): the driver has stored its own data instead of the timestamp, and converts it on
/// request.
const DRIVER_DATA: u8 = 1 << 5;

/// Tracepoint `netif_receive_skb(struct sk_buff *skb)`, 5.10 to 7.3: after GRO, and after the kernel has set its timestamp.
#[btf_tracepoint(function = "netif_receive_skb")]
fn netif_receive_skb(ctx: BtfTracePointContext) -> i32 {
    let skb: Ptr<SkBuff> = ctx.pointer(0);
    let device = skb.follow(&SKB_DEVICE);
    let interface =
        Interface { namespace: device.follow(&DEVICE_NET).read(&NET_INODE), index: device.read(&DEVICE_INDEX) };
    // Virtual interfaces are excluded: their packets may still have the timestamp of the NIC that received them.
    let Some(nic) = receive_driver::nic(interface) else { return 0 };
    let shared: Ptr<SkbSharedInfo, Probed> = Ptr::at(skb.read(&SKB_HEAD).wrapping_add(u64::from(skb.read(&SKB_END))));
    let timestamp = shared.read(&SHARED_HWTSTAMP);
    if timestamp == 0 {
        return 0;
    }
    let selected = selected(skb);
    if selected == Some(false) {
        return 0;
    }
    let received = if has_departure_time(skb) { 0 } else { skb.read(&SKB_TSTAMP) };
    if selected.is_none() {
        receive_driver::lost(nic, DriverLoss::NotFilterable);
    } else if shared.read(&SHARED_TX_FLAGS) & DRIVER_DATA != 0 {
        receive_driver::lost(nic, DriverLoss::TimestampOverwritten);
    } else {
        receive_driver::left(nic, timestamp, received);
    }
    0
}

/// Returns true if the filter selects a packet that has its device; `None` if that is unknown before the packet reaches its
/// socket.
#[inline(always)]
fn selected(skb: Ptr<SkBuff>) -> Option<bool> {
    let slot = if filter::has(Criterion::Workload) { or_node(|| owner::slot_of_namespace(skb)) } else { Slot::NODE };
    filter::selects_all(filter::selects(&arriving(skb)), slot)
}
