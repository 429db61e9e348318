//! The layer `host` of `undercurrent.network.receive.duration`: the time of a forwarded packet before its last receive timestamp.
//!
//! The kernel clears the timestamp of a packet that it forwards (`skb_clear_tstamp` in `ip_forward_finish` and `ip6_forward_finish`, Linux 5.10
//! to 7.3), and sets a new one at the receiver's interface. A table keeps the first one under the packet's identity in between.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    latency::{IpVersion, ReceivePoint},
    waiting::{self, mix_twice},
    workload::Slot,
};

use super::{latency, slow_cells};
use crate::kernel::{constant::constants, event::PacketEvent, filter::Subject, group::Number};

constants! {
    /// Whether the layer is measured.
    MEASURED = "latency.host";
}

/// The receive timestamps of packets that this host forwards, by identity.
#[map]
static FORWARDED: Array<u64> = Array::with_max_entries(1, 0);

/// The times of forwarded packets on this host, by their last receive timestamp, for spans.
#[map]
static HOST_TIMES: Array<u64> = Array::with_max_entries(1, 0);

/// One if this host has forwarded a packet.
#[map]
static FORWARDS: Array<u64> = Array::with_max_entries(1, 0);

/// Longest time of a packet on this host, in nanoseconds. A longer one belongs to an earlier packet with an equal identity.
const LONGEST: u64 = 10_000_000_000;

/// Returns the mix of a packet: its [identity](Subject::identity) and the bytes that [distinguish](Subject::distinct) it. Many flows have no
/// hash, and addresses are reused at once.
#[inline(always)]
fn mix(identity: u64, distinct: u32) -> u64 {
    mix_twice(identity ^ waiting::mix(distinct.into()))
}

/// Stores the receive timestamp of a packet that this host forwards.
#[inline(always)]
pub fn leaves(timestamp: u64, identity: u64, distinct: u32) {
    if MEASURED.get() == 0 {
        return;
    }
    let mix = mix(identity, distinct);
    if let Some(entry) = FORWARDED.get_ptr_mut(waiting::index(mix)) {
        // SAFETY: an entry of the map, which lives as long as the program. A word is written as a whole.
        unsafe { *entry = waiting::entry(mix, timestamp) };
    }
    if let Some(forwards) = FORWARDS.get_ptr_mut(0) {
        // SAFETY: the entry of the map. It is written once, so that its cache line remains shared.
        unsafe {
            if *forwards == 0 {
                *forwards = 1;
            }
        }
    }
}

/// Records the time of a packet on this host if it was forwarded, at the entry of its transport protocol.
#[inline(always)]
pub fn delivered(version: IpVersion, packet: &impl Subject, event: &PacketEvent, slot: Slot, group: Option<Number>) {
    if MEASURED.get() == 0 || FORWARDS.get(0).is_none_or(|forwards| *forwards == 0) {
        return;
    }
    let (Some(identity), Some(distinct)) = (packet.identity(), packet.distinct(version)) else { return };
    let Some(time) = take(mix(identity, distinct), event.timestamp) else { return };
    latency::passed_host(ReceivePoint::host(version), time, event.weight, slot, group);
    let mix = waiting::mix(event.timestamp);
    if slow_cells::enabled()
        && let Some(entry) = HOST_TIMES.get_ptr_mut(waiting::index(mix))
    {
        // SAFETY: an entry of the map, which lives as long as the program. A word is written as a whole.
        unsafe { *entry = waiting::entry(mix, time) };
    }
}

/// Returns the nanoseconds between the first receive timestamp of a forwarded packet and its last one, and frees the entry; `None` for other
/// packets.
#[inline(always)]
fn take(mix: u64, timestamp: u64) -> Option<u64> {
    let entry = FORWARDED.get_ptr_mut(waiting::index(mix))?;
    // SAFETY: an entry of the map, which lives as long as the program. A word is read as a whole.
    let time = waiting::since(unsafe { *entry }, mix, timestamp)?;
    // SAFETY: as above; a word is written as a whole.
    unsafe { *entry = 0 };
    if time < LONGEST { Some(time) } else { None }
}

/// Returns the nanoseconds on this host of the packet with a receive timestamp; zero if it was not forwarded.
#[inline(always)]
pub fn time_of(timestamp: u64) -> u64 {
    if MEASURED.get() == 0 {
        return 0;
    }
    let mix = waiting::mix(timestamp);
    match HOST_TIMES.get(waiting::index(mix)) {
        Some(entry) if waiting::is_of(*entry, mix) => waiting::elapsed(0, *entry),
        _ => 0,
    }
}
