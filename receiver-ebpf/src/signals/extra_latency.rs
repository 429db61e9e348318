//! `undercurrent.network.receive.duration` at the layers that a user names.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    extra,
    latency::IpVersion,
    loss::{PACKET_LOSSES, PacketLoss},
    workload::Slot,
};

use super::timings;
use crate::kernel::{
    cells::{self, MMAPABLE},
    constant::constants,
    event::Sampled,
    filter::{self, Subject},
    group,
    owner::or_node,
    shard, shared,
};

#[map]
static EXTRA_LATENCY: Array<u64> = Array::with_max_entries(1, MMAPABLE);

constants! {
    /// Words of a cell.
    CELL = "extra.cell";
    /// Words of a shard.
    SHARD = "extra.shard";
    /// The index of the first group. Slots of workloads come before the groups.
    GROUPS = "extra.groups";
}

/// Records a packet at a layer. `slot` runs only if attribution is on.
#[inline(always)]
pub fn reached(layer: usize, version: IpVersion, packet: &impl Subject, event: Sampled, slot: impl FnOnce() -> Slot) {
    let selected = filter::selects(packet);
    if selected == Some(false) {
        return;
    }
    let event = match event {
        Ok(Some(event)) => event,
        Ok(None) => return,
        Err(loss) => return lost(layer, version, loss, 1),
    };
    let slot = or_node(slot);
    let age = match filter::selects_all(selected, slot) {
        Some(true) => timings::plausible(event.age()),
        Some(false) => return,
        None => Err(PacketLoss::NotFilterable),
    };
    match age {
        Ok(nanoseconds) => {
            let group = group::of(packet, slot, event.weight);
            let owner = group.map_or(slot.0.into(), |group| GROUPS.get() + group.get());
            record(owner, layer, version, nanoseconds, event.weight);
        }
        Err(loss) => lost(layer, version, loss, event.weight),
    }
}

#[inline(always)]
fn record(owner: u32, layer: usize, version: IpVersion, nanoseconds: u64, weight: u64) {
    let first = cell(owner, layer, version);
    let _ = cells::record_words(nanoseconds, weight, |offset, amount| {
        add(first + (offset / size_of::<u64>()) as u32, amount);
    });
}

#[inline(always)]
fn lost(layer: usize, version: IpVersion, reason: PacketLoss, count: u64) {
    let losses = cell(Slot::NODE.0.into(), layer, version) + CELL.get() - PACKET_LOSSES as u32;
    add(losses + reason as u32, count);
}

/// Returns the index of the first word of an owner's cell in this CPU's shard. An owner is a slot or a group.
#[inline(always)]
fn cell(owner: u32, layer: usize, version: IpVersion) -> u32 {
    // SAFETY: the helper has no arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let shard = shard::index(owner, cpu);
    shard * SHARD.get() + extra::index(layer, version) as u32 * CELL.get()
}

#[inline(always)]
fn add(index: u32, amount: u64) {
    // Atomic: a function may run in a task and in an interrupt of that task, so a CPU may interrupt its own addition.
    if let Some(word) = EXTRA_LATENCY.get_ptr_mut(index) {
        shared::add(word, amount);
    }
}
