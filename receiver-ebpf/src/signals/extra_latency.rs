//! `undercurrent.network.receive.duration` at the layers that a user names.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    extra,
    latency::Network,
    loss::{PACKET_LOSSES, PacketLoss},
    workload::Slot,
};

use super::{timings, workload_latency};
use crate::kernel::{
    cells::{self, MMAPABLE},
    event::Sampled,
    filter::{self, Subject},
    group,
    owner::or_node,
    set_outside, shared,
};

#[map]
static EXTRA_LATENCY: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Words of a cell.
#[unsafe(export_name = "extra.cell")]
#[unsafe(link_section = ".rodata.scale")]
static CELL: u32 = 0;

/// Words of a shard.
#[unsafe(export_name = "extra.shard")]
#[unsafe(link_section = ".rodata.scale")]
static SHARD: u32 = 0;

/// The first group among the owners of cells: slots come before it.
#[unsafe(export_name = "extra.groups")]
#[unsafe(link_section = ".rodata.scale")]
static GROUPS: u32 = 0;

/// A packet reached a layer. Whose it is, is asked only where somebody wants to know.
#[inline(always)]
pub fn reached(layer: usize, network: Network, packet: &impl Subject, event: Sampled, slot: impl FnOnce() -> Slot) {
    let chosen = filter::chooses(packet);
    if chosen == Some(false) {
        return;
    }
    let event = match event {
        Ok(Some(event)) => event,
        Ok(None) => return,
        Err(loss) => return lost(layer, network, loss, 1),
    };
    let slot = or_node(slot);
    let age = match filter::chooses_all(chosen, slot) {
        Some(true) => timings::plausible(event.age()),
        Some(false) => return,
        None => Err(PacketLoss::Unfiltered),
    };
    match age {
        Ok(nanoseconds) => {
            let owner =
                group::of(packet, slot, event.weight).map_or(slot.0.into(), |group| set_outside(&GROUPS) + group.0);
            record(owner, layer, network, nanoseconds, event.weight);
        }
        Err(loss) => lost(layer, network, loss, event.weight),
    }
}

#[inline(always)]
fn record(owner: u32, layer: usize, network: Network, nanoseconds: u64, weight: u64) {
    let Ok(offset) = cells::slot(nanoseconds) else { return };
    let sum = cell(owner, layer, network);
    add(sum, nanoseconds * weight);
    add(sum + 1 + (offset / size_of::<u64>()) as u32, weight);
}

#[inline(always)]
fn lost(layer: usize, network: Network, reason: PacketLoss, count: u64) {
    let losses = cell(Slot::NODE.0.into(), layer, network) + set_outside(&CELL) - PACKET_LOSSES as u32;
    add(losses + reason as u32, count);
}

/// Where an owner's cell of this CPU begins.
#[inline(always)]
fn cell(owner: u32, layer: usize, network: Network) -> u32 {
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    workload_latency::shard(owner, cpu) * set_outside(&SHARD) + extra::index(layer, network) as u32 * set_outside(&CELL)
}

#[inline(always)]
fn add(index: u32, amount: u64) {
    // A function may be called in a task and in the interrupt on top of it, so that one CPU may write a word twice at once.
    if let Some(word) = EXTRA_LATENCY.get_ptr_mut(index) {
        shared::add(word, amount);
    }
}
