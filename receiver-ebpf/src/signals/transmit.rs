//! `undercurrent.network.transmit.duration`: how long a packet took for each part of its way out.
//!
//! Nothing can be written into a packet. So when a part begins is remembered by the packet's address, and found there when
//! it ends; an address is another packet's at once, so that what tells packets apart is mixed with it.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    latency::{Series, Transport, waiting},
    loss::PacketLoss,
    transmit::{Departure, SetOfWays, TransmitLayer, WAYS, set},
    workload::Slot,
};

use super::{switch, timings};
use crate::kernel::{group::Number, sample, set_outside};

switch!("transmit");

/// The layers that are measured.
#[unsafe(export_name = "transmit.layers")]
#[unsafe(link_section = ".rodata.flags")]
static LAYERS: u32 = 0;

/// Packets on their way.
#[map]
static DEPARTING: Array<SetOfWays> = Array::with_max_entries(1, 0);

/// How far a departure time may lie ahead (four minutes): what does is a time of another clock.
const AHEAD: u64 = 1 << 38;

/// Whose a packet is, and its group; why it is measured for nobody, unless others are chosen.
pub type Recipient = Result<(Slot, Option<Number>), Option<PacketLoss>>;

/// When a part of a packet's way began.
#[derive(Clone, Copy)]
pub enum Begin {
    /// In an entry's bits.
    At(u64),
    /// The sample leaves the packet out.
    LeftOut,
    /// Not known.
    Unknown,
}

/// Whether a layer is measured; the verifier knows.
#[inline(always)]
pub fn measures(layer: TransmitLayer) -> bool {
    enabled() && set_outside(&LAYERS) & layer.bit() != 0
}

/// Whether a time is a departure time that is yet to come.
#[inline(always)]
pub fn is_ahead(departure: u64, now: u64) -> bool {
    departure.wrapping_sub(now) < AHEAD
}

/// A segment of TCP got to its device's qdisc. Before its departure time it is not late.
#[inline(always)]
pub fn departed(departure: u64, now: u64, recipient: Recipient) {
    let late = if is_ahead(departure, now) { 0 } else { now.wrapping_sub(departure) };
    record(TransmitLayer::Transport, Transport::Tcp, late, recipient);
}

/// A segment got there that bears no departure time.
#[inline(always)]
pub fn unstamped() {
    timings::lost(series(TransmitLayer::Transport, Transport::Tcp), PacketLoss::NoStamp, 1);
}

/// A part of a packet's way begins at a time, or at none where the sample leaves it out. Whether another packet's end has
/// not been seen, and will not be.
#[inline(always)]
pub fn begun(layer: TransmitLayer, mix: u64, time: Option<u64>) -> bool {
    let Some(set) = DEPARTING.get_ptr_mut(set(layer, mix)) else { return false };
    // SAFETY: an entry of the map, which lives as long as the program.
    let place = unsafe { place(set, mix) };
    // No packet that is measured begins at zero, which says that it is not.
    let entry = waiting::entry(mix, time.map_or(0, |time| time | 1));
    // SAFETY: as above.
    let before = unsafe { core::mem::replace(&mut *place, entry) };
    before & !(u64::MAX << waiting::TIME) != 0
}

/// A part of a packet's way ends: when it began, once.
#[inline(always)]
pub fn begin(layer: TransmitLayer, mix: u64) -> Begin {
    let Some(set) = DEPARTING.get_ptr_mut(set(layer, mix)) else { return Begin::Unknown };
    // SAFETY: as above.
    let Some(way) = (unsafe { own(set, mix) }) else { return Begin::Unknown };
    // SAFETY: as above.
    let entry = unsafe { core::mem::take(&mut *way) };
    if entry == waiting::entry(mix, 0) { Begin::LeftOut } else { Begin::At(entry) }
}

/// A part of a packet's way has ended that began at an entry's time.
#[inline(always)]
pub fn ended(layer: TransmitLayer, transport: Transport, entry: u64, now: u64, recipient: Recipient) {
    let elapsed = waiting::elapsed(entry, now);
    // The upper half is of packets that did not wait for their departure time.
    let waited = if elapsed >> (waiting::TIME - 1) == 0 { elapsed } else { 0 };
    record(layer, transport, waited, recipient);
}

#[inline(always)]
fn record(layer: TransmitLayer, transport: Transport, duration: u64, recipient: Recipient) {
    let (series, weight) = (series(layer, transport), sample::share());
    match recipient {
        Ok((slot, group)) => timings::record_in(group, series, duration, weight, slot),
        Err(Some(loss)) => timings::lost(series, loss, weight),
        Err(None) => {}
    }
}

/// A packet's begin, or another one's end, is not known.
#[inline(always)]
pub fn unmatched(layer: TransmitLayer, transport: Transport) {
    timings::lost(series(layer, transport), PacketLoss::Unmatched, 1);
}

const fn series(layer: TransmitLayer, transport: Transport) -> Series {
    Series::Transmit(Departure { layer, transport })
}

/// The places of a set.
#[inline(always)]
fn ways(set: *mut SetOfWays) -> impl Iterator<Item = *mut u64> {
    // SAFETY: within the set.
    (0..WAYS).map(move |way| unsafe { set.cast::<u64>().add(way) })
}

/// Where a packet is remembered.
///
/// # Safety
/// The set is an entry of the map.
#[inline(always)]
unsafe fn own(set: *mut SetOfWays, mix: u64) -> Option<*mut u64> {
    // SAFETY: by the caller; another CPU's packet may replace what is there.
    ways(set).find(|way| unsafe { waiting::is_of(**way, mix) })
}

/// Where to remember a packet. It has one place: its end would find what is left in another one.
///
/// # Safety
/// As for [`own`].
#[inline(always)]
unsafe fn place(set: *mut SetOfWays, mix: u64) -> *mut u64 {
    // Each returned at once: a choice between them took 85 instructions more.
    // SAFETY: as there.
    if let Some(way) = unsafe { own(set, mix) } {
        return way;
    }
    // SAFETY: as there.
    if let Some(way) = ways(set).find(|way| unsafe { **way == 0 }) {
        return way;
    }
    set.cast()
}
