//! Groups: packets of a workload by interface or network namespace. A group's first packet creates it.

use core::num::NonZeroU32;

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
    filter::{Subject, groups_by},
    shared,
};

/// The number of each group.
#[map]
static GROUPS: HashMap<Group, u32> = HashMap::with_max_entries(1, 0);

/// Unused numbers.
#[map]
static FREE_GROUPS: Queue<u32> = Queue::with_max_entries(1, 0);

/// The names of the groups' interfaces.
#[map]
static INTERFACES: HashMap<Interface, [u64; 2]> = HashMap::with_max_entries(1, 0);

/// Packets without a group.
#[map]
static GROUP_LOSSES: ByCpu<GroupCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// The number of a group. It is stored plus one, so that [`Option`] needs no second word: the compiler leaves an unused word of the
/// stack uninitialized and may load it, which the verifier of 5.10 rejects.
#[derive(Clone, Copy)]
pub struct Number(NonZeroU32);

impl Number {
    /// Returns a number below 2^32 - 1 in this form.
    #[inline(always)]
    pub const fn of(number: u32) -> Option<Self> {
        match NonZeroU32::new(number.wrapping_add(1)) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the number.
    #[inline(always)]
    pub const fn get(self) -> u32 {
        self.0.get() - 1
    }
}

/// Returns the group of a packet of the workload in a slot; `None` if grouping is off or the packet has no group. Counts
/// packets without a group, `weight` times.
#[inline(always)]
pub fn of(packet: &impl Subject, slot: Slot, weight: u64) -> Option<Number> {
    if !(groups_by(Dimension::Interface) || groups_by(Dimension::Namespace)) {
        return None;
    }
    let Some(interface) = interface(packet) else { return lost(GroupLoss::UnknownInterface, weight) };
    let group = Group { interface, slot: slot.0.into() };
    match number(&group).or_else(|| create(&group, packet)) {
        Some(number) => Some(number),
        None => lost(GroupLoss::GroupLimit, weight),
    }
}

/// Returns the namespace and interface of a packet; index zero if packets are grouped by namespace only.
#[inline(always)]
fn interface(packet: &impl Subject) -> Option<Interface> {
    let namespace = packet.namespace()?;
    let index = if groups_by(Dimension::Interface) { packet.interface()? } else { 0 };
    Some(Interface { namespace, index })
}

#[inline(always)]
fn number(group: &Group) -> Option<Number> {
    // SAFETY: the number of a group does not change while it is in the map.
    unsafe { GROUPS.get(group) }.and_then(|number| Number::of(*number))
}

#[inline(always)]
fn create(group: &Group, packet: &impl Subject) -> Option<Number> {
    let free = FREE_GROUPS.pop().ok()??;
    if groups_by(Dimension::Interface)
        && let Some(name) = packet.interface_name()
    {
        let _ = INTERFACES.insert(group.interface, name, 0);
    }
    if GROUPS.insert(group, free, BPF_NOEXIST.into()).is_err() {
        // Another CPU created the group first, or the kernel is out of memory.
        let _ = FREE_GROUPS.push(free, 0);
        return number(group);
    }
    Number::of(free)
}

#[inline(always)]
fn lost(loss: GroupLoss, weight: u64) -> Option<Number> {
    // The compiler turns an atomic addition of zero into an instruction that 5.10 refuses (`BPF_STX uses reserved fields`).
    if weight != 0
        && let Some(cells) = cells::here(&GROUP_LOSSES)
    {
        // Several programs count, and one may interrupt another.
        shared::add(&raw mut cells.lost[loss as usize], weight);
    }
    None
}
