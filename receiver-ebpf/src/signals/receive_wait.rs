//! `undercurrent.network.receive.wait.duration`: from arrival in a socket's queue to the read. TCP has a wait for each read, from the
//! arrival of its first byte. UDP has a wait for each datagram.

use undercurrent_ebpf::abi::{
    ABSENT,
    latency::{IpVersion, Transport},
    loss::PacketLoss,
    series::Series,
    workload::Slot,
};

use super::{slow_cells, switch, timings, waiting_packets};
use crate::kernel::{
    event::PacketEvent,
    fields::Sock,
    filter::Subject,
    group::Number,
    pointer::Ptr,
    sample, served,
    unread::{self, Data, NONE, Reading},
};

switch!("receive_wait");

/// Returns true if the wait of data of TCP is kept with its socket.
#[inline(always)]
fn is_with_socket(transport: Transport, packet: &impl Subject) -> bool {
    transport == Transport::Tcp && packet.has_storage() && unread::is_stored()
}

/// Returns true if the wait of a packet needs a record of the packet.
#[inline(always)]
pub fn needs_record(transport: Option<Transport>, packet: &impl Subject) -> bool {
    enabled() && transport.is_some_and(|transport| !is_with_socket(transport, packet))
}

/// Handles data that arrives in the receive queue of a connection, as [`unread::arrived`] does.
#[inline(always)]
pub fn data_arrived(sock: Ptr<Sock>, queued: u32, early: u64) {
    if enabled() && unread::is_stored() {
        unread::arrived(sock, queued, early);
    }
}

/// Returns true if the wait of data begins at the transport protocol.
#[inline(always)]
pub fn begins_at_transport() -> bool {
    (enabled() || slow_cells::enabled()) && unread::begins_at_transport()
}

/// Returns how long data that a task reads from a connection has waited, as [`unread::read`] does.
#[inline(always)]
pub fn data_read(sock: Ptr<Sock>, data: &impl Data, early: u64) -> Reading {
    if (enabled() || begins_at_transport()) && unread::is_stored() && served::enqueued() {
        unread::read(sock, data, early)
    } else {
        Reading::of(NONE)
    }
}

/// Records the result of [`data_read`], for its group or else for the slot.
#[inline(always)]
pub fn record_data(wait: u64, version: IpVersion, slot: Slot, group: Option<Number>) {
    if !enabled() {
        return;
    }
    let group = group.map_or(ABSENT, Number::get);
    record_packed(wait, u64::from(group) << 32 | u64::from(slot.0) << 16 | version as u64);
}

/// Records a wait. `packed` contains, from the top, the group, the slot and the IP version. A function of its own keeps the programs
/// small.
#[inline(never)]
fn record_packed(wait: u64, packed: u64) {
    let slot = Slot((packed >> 16) as u16);
    let group = match (packed >> 32) as u32 {
        ABSENT => None,
        group => Number::of(group),
    };
    // One branch per version, so that each has its histogram at a constant offset.
    if packed & 1 == IpVersion::Ipv4 as u64 {
        record(Series::Wait(Transport::Tcp, IpVersion::Ipv4), wait, sample::share(), slot, group);
    } else {
        record(Series::Wait(Transport::Tcp, IpVersion::Ipv6), wait, sample::share(), slot, group);
    }
}

/// Records the wait of a packet with a record, for its group or else for the slot. `wait` is the result of [`waiting_packets::end`].
#[inline(always)]
pub fn ended(
    event: &PacketEvent,
    wait: u64,
    transport: Transport,
    version: IpVersion,
    packet: &impl Subject,
    slot: Slot,
    group: Option<Number>,
) {
    if needs_record(Some(transport), packet) && served::enqueued() {
        record(Series::Wait(transport, version), wait, event.weight, slot, group);
    }
}

#[inline(always)]
fn record(series: Series, wait: u64, weight: u64, slot: Slot, group: Option<Number>) {
    const { assert!(waiting_packets::UNKNOWN == unread::UNKNOWN) };
    if wait == unread::UNKNOWN {
        timings::lost(series, PacketLoss::MissingStart, weight);
    } else {
        timings::record_in(group, series, wait, weight, slot);
    }
}
