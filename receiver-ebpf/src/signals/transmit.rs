//! `undercurrent.network.transmit.duration`: the time that a packet takes for each layer of the transmit path.
//!
//! Programs cannot write into packets. A table keeps the start of a layer under the packet's address until its end. Addresses
//! are reused at once, so the key includes further attributes of the packet.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    latency::Transport,
    loss::PacketLoss,
    series::Series,
    transmit::{SetOfWays, TransmitLayer, TransmitSeries, WAYS, set},
    waiting,
    workload::Slot,
};

use super::{switch, timings};
use crate::kernel::{constant::constants, group::Number, sample};

switch!("transmit");

constants! {
    /// The bits of the measured layers.
    LAYERS = "transmit.layers";
}

/// Start times of packets in a layer.
#[map]
static STAGE_STARTS: Array<SetOfWays> = Array::with_max_entries(1, 0);

/// TransmitSeries times this far in the future (four minutes) come from another clock.
const AHEAD: u64 = 1 << 38;

/// Whose packet it is. Every word is set, see [`Number`].
#[derive(Clone, Copy)]
pub struct Recipient {
    /// The slot of the sender's workload.
    pub slot: Slot,
    /// The group, if packets are grouped.
    pub group: Option<Number>,
    /// Whether the packet is measured.
    pub verdict: Verdict,
}

/// Whether a packet is measured.
#[derive(Clone, Copy)]
pub enum Verdict {
    /// It is.
    Measured,
    /// The filter does not select it.
    Excluded,
    /// It is unknown if the filter selects it.
    Lost(PacketLoss),
}

/// The start of a layer.
#[derive(Clone, Copy)]
pub enum Start {
    /// The entry that has the start time.
    At(u64),
    /// The packet is outside of the sample.
    NotSampled,
    /// There is no entry.
    Unknown,
}

/// Returns true if a layer is measured, a constant to the verifier.
#[inline(always)]
pub fn measures(layer: TransmitLayer) -> bool {
    enabled() && LAYERS.get() & layer.bit() != 0
}

/// Returns true if a time is a departure time in the future.
#[inline(always)]
pub fn is_ahead(departure: u64, now: u64) -> bool {
    departure.wrapping_sub(now) < AHEAD
}

/// Records a TCP segment at its device's qdisc. A segment before its departure time counts with zero.
#[inline(always)]
pub fn at_qdisc(departure: u64, now: u64, recipient: Recipient) {
    let late = if is_ahead(departure, now) { 0 } else { now.wrapping_sub(departure) };
    record(TransmitLayer::Transport, Transport::Tcp, late, recipient);
}

/// Counts a TCP segment without a departure time at its device's qdisc.
#[inline(always)]
pub fn without_timestamp() {
    timings::lost(series(TransmitLayer::Transport, Transport::Tcp), PacketLoss::NoTimestamp, 1);
}

/// Stores the start of a layer; `None` for a packet outside of the sample. Returns true if it replaced the start of another
/// measured packet.
#[inline(always)]
pub fn store_start(layer: TransmitLayer, mix: u64, time: Option<u64>) -> bool {
    let Some(set) = STAGE_STARTS.get_ptr_mut(set(layer, mix)) else { return false };
    // Zero marks a packet outside of the sample, so the lowest bit of a start time is always set.
    let entry = waiting::entry(mix, time.map_or(0, |time| time | 1));
    // SAFETY: a way of an entry of the map, which lives as long as the program.
    let before = unsafe { core::mem::replace(&mut *free_way(set, mix), entry) };
    before & !(u64::MAX << waiting::TIME) != 0
}

/// Returns the start of a layer and removes it.
#[inline(always)]
pub fn take_start(layer: TransmitLayer, mix: u64) -> Start {
    let Some(set) = STAGE_STARTS.get_ptr_mut(set(layer, mix)) else { return Start::Unknown };
    let Some(way) = own_way(set, mix) else { return Start::Unknown };
    // SAFETY: a way of an entry of the map, which lives as long as the program.
    let entry = unsafe { core::mem::take(&mut *way) };
    if entry == waiting::entry(mix, 0) { Start::NotSampled } else { Start::At(entry) }
}

/// Records the end of a layer. `entry` is that of [`Start::At`].
#[inline(always)]
pub fn ended(layer: TransmitLayer, transport: Transport, entry: u64, now: u64, recipient: Recipient) {
    let elapsed = waiting::elapsed(entry, now);
    // A difference in the upper half is negative: the packet left before its departure time.
    let waited = if elapsed >> (waiting::TIME - 1) == 0 { elapsed } else { 0 };
    record(layer, transport, waited, recipient);
}

#[inline(always)]
fn record(layer: TransmitLayer, transport: Transport, duration: u64, recipient: Recipient) {
    let (series, weight) = (series(layer, transport), sample::share());
    match recipient.verdict {
        Verdict::Measured => timings::record_in(recipient.group, series, duration, weight, recipient.slot),
        Verdict::Lost(loss) => timings::lost(series, loss, weight),
        Verdict::Excluded => {}
    }
}

/// Counts a packet without a start, or the replaced start of another packet.
#[inline(always)]
pub fn unmatched(layer: TransmitLayer, transport: Transport) {
    timings::lost(series(layer, transport), PacketLoss::MissingStart, 1);
}

const fn series(layer: TransmitLayer, transport: Transport) -> Series {
    Series::Transmit(TransmitSeries { layer, transport })
}

/// Returns pointers to the ways of a set.
#[inline(always)]
fn ways(set: *mut SetOfWays) -> impl Iterator<Item = *mut u64> {
    // SAFETY: within the set.
    (0..WAYS).map(move |way| unsafe { set.cast::<u64>().add(way) })
}

/// Returns the way with a packet's entry. The set is an entry of the map.
#[inline(always)]
fn own_way(set: *mut SetOfWays, mix: u64) -> Option<*mut u64> {
    // SAFETY: a way of the set. Another CPU may overwrite it, which [`waiting::is_of`] detects.
    ways(set).find(|way| unsafe { waiting::is_of(**way, mix) })
}

/// Returns the way for a packet's entry: its own, so that it has only one, else an empty one, else the first. The set is an entry of
/// the map.
#[inline(always)]
fn free_way(set: *mut SetOfWays, mix: u64) -> *mut u64 {
    // Early returns: a combined expression took 85 instructions more.
    if let Some(way) = own_way(set, mix) {
        return way;
    }
    // SAFETY: a way of the set.
    if let Some(way) = ways(set).find(|way| unsafe { **way == 0 }) {
        return way;
    }
    set.cast()
}
