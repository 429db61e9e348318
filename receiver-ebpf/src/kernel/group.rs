//! What packets are told apart by beside their workload: groups, which come to be with their first packet.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    macros::map,
    maps::{HashMap, Queue},
};
use undercurrent_ebpf::abi::{
    group::{Dimension, Group, GroupCells, GroupLoss},
    interface::Interface,
    workload::Slot,
};

use super::{
    cells::{self, ByCpu, MMAPABLE},
    filter::{Subject, tells_apart},
};

/// The number of each group.
#[map]
static GROUPS: HashMap<Group, u32> = HashMap::with_max_entries(1, 0);

/// Numbers that no group has.
#[map]
static FREE_GROUPS: Queue<u32> = Queue::with_max_entries(1, 0);

/// The names of the groups' interfaces.
#[map]
static INTERFACES: HashMap<Interface, [u64; 2]> = HashMap::with_max_entries(1, 0);

/// What is in no group.
#[map]
static GROUP_LOSSES: ByCpu<GroupCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// The number of a group.
#[derive(Clone, Copy)]
pub struct Number(pub u32);

/// The group of a packet that belongs to whoever has the slot; `None` where packets are not told apart, and where this one
/// cannot be, which is counted as often as its weight says.
#[inline(always)]
pub fn of(packet: &impl Subject, slot: Slot, weight: u64) -> Option<Number> {
    if !(tells_apart(Dimension::Interface) || tells_apart(Dimension::Namespace)) {
        return None;
    }
    let Some(interface) = interface(packet) else { return lost(GroupLoss::Unknown, weight) };
    let group = Group { interface, slot: slot.0.into() };
    match number(&group).or_else(|| founded(&group, packet)) {
        Some(number) => Some(number),
        None => lost(GroupLoss::Limit, weight),
    }
}

/// Where a packet came in, or leaves, as far as packets are told apart by that.
#[inline(always)]
fn interface(packet: &impl Subject) -> Option<Interface> {
    let namespace = packet.namespace()?;
    let index = if tells_apart(Dimension::Interface) { packet.interface()? } else { 0 };
    Some(Interface { namespace, index })
}

#[inline(always)]
fn number(group: &Group) -> Option<Number> {
    // SAFETY: a group keeps its number as long as it is in the map.
    unsafe { GROUPS.get(group) }.map(|number| Number(*number))
}

/// Gives a new group a number.
#[inline(always)]
fn founded(group: &Group, packet: &impl Subject) -> Option<Number> {
    let free = FREE_GROUPS.pop().ok()??;
    if tells_apart(Dimension::Interface)
        && let Some(name) = packet.interface_name()
    {
        let _ = INTERFACES.insert(group.interface, name, 0);
    }
    if GROUPS.insert(group, free, BPF_NOEXIST.into()).is_err() {
        // Another CPU was faster, or the kernel has no room.
        let _ = FREE_GROUPS.push(free, 0);
        return number(group);
    }
    Some(Number(free))
}

#[inline(always)]
fn lost(loss: GroupLoss, weight: u64) -> Option<Number> {
    if let Some(cells) = cells::here(&GROUP_LOSSES) {
        cells.lost[loss as usize] += weight;
    }
    None
}
