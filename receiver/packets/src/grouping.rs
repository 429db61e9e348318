//! Grouping of packets by keys besides the workload. The first packet creates a group. A group ends with its workload,
//! or if another group needs its number.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    fs,
    os::unix::fs::MetadataExt as _,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::net::{AddressFamily, SocketType, netdevice::index_to_name, socket};
use undercurrent_ebpf::abi::{
    group::{Dimension, Group, GroupCells, GroupLoss},
    interface::Interface,
};

use crate::{
    attributes,
    kernel::{
        Kernel, KernelError,
        groups::{self, GroupIndex, Groups},
        maps::{ByCpu, Words},
    },
    options::Dimensions,
    telemetry::{Attributes, UnixNanos, Value},
    workloads::Slot,
};

/// The network namespace of interface names if the eBPF programs report no namespace.
const HERE: &str = "/proc/self/ns/net";
/// Number of consecutive updates without packets after which a group's number can be reused.
const IDLE: u32 = 10;

/// The groups, shared by the signals that have histograms by group.
pub type SharedGrouping = Rc<RefCell<Grouping>>;

/// The groups of packets and their numbers.
pub struct Grouping {
    groups: Groups,
    cells: Vec<GroupWords>,
    losses: ByCpu<GroupCells>,
    by: Dimensions,
    /// The inode of this process's network namespace.
    here: Option<u32>,
    /// The start time of each number.
    starts: Vec<UnixNanos>,
    live: Vec<LiveGroup>,
    /// Numbers of removed groups. They become free at the next update, because programs may still write to them.
    leaving: Vec<GroupIndex>,
    /// The total of each number's cells at the last update, and the number of updates without change. Empty while
    /// numbers are free.
    watched: HashMap<GroupIndex, (u64, u32)>,
}

/// A group of packets.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveGroup {
    /// The index of the group in maps.
    pub index: GroupIndex,
    /// The workload of the group.
    pub slot: Slot,
    /// The attributes that the group adds to a point.
    pub attributes: Vec<(&'static str, Value)>,
    /// The start time of the group's measurements.
    pub start: UnixNanos,
    group: Group,
    named: bool,
}

impl LiveGroup {
    /// Adds the group's attributes to the attributes of a point.
    #[must_use]
    pub fn add_attributes(&self, attributes: Attributes) -> Attributes {
        self.attributes.iter().fold(attributes, |all, (key, value)| all.with(*key, value.clone()))
    }
}

/// A map with words of groups: each group has a range of equal length.
pub struct GroupWords {
    /// The words of the map.
    pub words: Words,
    /// The index of the first group's first word.
    pub first: usize,
    /// The number of words of a group.
    pub length: usize,
}

impl GroupWords {
    fn words(&self, group: GroupIndex) -> &[AtomicU64] {
        let first = self.first + group.get() * self.length;
        self.words.slice(first..first + self.length)
    }
}

impl Grouping {
    /// Enables grouping in the eBPF programs, with at most `limit` groups. `cells` has the measurements of groups.
    ///
    /// # Errors
    /// If a map is not available.
    pub fn open(
        kernel: &Kernel,
        by: Dimensions,
        limit: u16,
        cells: Vec<GroupWords>,
        start: UnixNanos,
    ) -> Result<Self, KernelError> {
        let mut grouping = Self {
            groups: kernel.groups(),
            cells,
            losses: kernel.by_cpu(&groups::LOSSES)?,
            by,
            here: fs::metadata(HERE).ok().and_then(|file| u32::try_from(file.ino()).ok()),
            starts: vec![start; limit.into()],
            live: Vec::new(),
            leaving: Vec::new(),
            watched: HashMap::new(),
        };
        (0..u32::from(limit)).for_each(|index| grouping.give(GroupIndex(index)));
        Ok(grouping)
    }

    /// Returns the groups as of the last update.
    #[must_use]
    pub fn live(&self) -> &[LiveGroup] {
        &self.live
    }

    /// Removes the groups of a workload before another workload receives its slot.
    pub fn forget(&mut self, slot: Slot) {
        let (theirs, others) = std::mem::take(&mut self.live).into_iter().partition(|live| live.slot == slot);
        self.live = others;
        self.remove(theirs);
    }

    /// Finds new groups, and removes idle groups if no number is free.
    pub fn refresh(&mut self, now: UnixNanos) {
        // The last snapshot included all values that programs wrote while a group was removed.
        for index in std::mem::take(&mut self.leaving) {
            self.words(index).for_each(|word| word.store(0, Ordering::Relaxed));
            self.starts[index.get()] = now;
            self.give(index);
        }
        let found = match self.groups.all() {
            Ok(found) => found,
            Err(error) => return tracing::warn!("cannot read the groups of packets; keeping the known ones: {error}"),
        };
        let known: HashMap<GroupIndex, LiveGroup> = self.live.drain(..).map(|live| (live.index, live)).collect();
        let found = found.into_iter().filter(|(_, index)| index.get() < self.starts.len());
        let known_group =
            |group, index: &GroupIndex| known.get(index).filter(|live| live.named && live.group == group).cloned();
        self.live = found
            .map(|(group, index)| known_group(group, &index).unwrap_or_else(|| self.new_group(group, index)))
            .collect();
        if self.live.len() < self.starts.len() {
            self.watched.clear();
        } else {
            self.remove_idle();
        }
    }

    /// Returns the number of packets without a group, by reason.
    #[must_use]
    pub fn losses(&self) -> Vec<(&'static str, u64)> {
        let mut counts = GroupLoss::ALL.map(|_| 0);
        self.losses.for_each(|_, cells| counts.iter_mut().zip(cells.lost).for_each(|(count, lost)| *count += lost));
        loss_reasons().zip(counts).collect()
    }

    /// Returns the words of a group in all maps.
    fn words(&self, index: GroupIndex) -> impl Iterator<Item = &AtomicU64> {
        self.cells.iter().flat_map(move |cells| cells.words(index))
    }

    fn new_group(&self, group: Group, index: GroupIndex) -> LiveGroup {
        let Group { interface, slot } = group;
        let (mut attributes, mut named) = (Vec::new(), true);
        if self.by.contains(Dimension::Interface) {
            let name = self.groups.name(interface).or_else(|| self.name_here(interface));
            named = name.is_some();
            // `ip link` shows this form for links in other namespaces.
            let name = name.unwrap_or_else(|| format!("if{}", interface.index));
            attributes.push((attributes::INTERFACE.key, attributes::interface(&name)));
        }
        if self.by.contains(Dimension::Namespace) {
            attributes.push((attributes::NAMESPACE.key, interface.namespace.into()));
        }
        let slot = Slot(u16::try_from(slot).unwrap_or(Slot::NODE.0));
        LiveGroup { index, slot, attributes, start: self.starts[index.get()], group, named }
    }

    fn name_here(&self, interface: Interface) -> Option<String> {
        if self.here != Some(interface.namespace) {
            return None;
        }
        let any = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
        index_to_name(&any, interface.index).ok()
    }

    /// Removes the groups that have been idle for longest, at most a quarter of all groups.
    fn remove_idle(&mut self) {
        for live in &self.live {
            let words = self.words(live.index);
            let total = words.fold(0_u64, |total, word| total.wrapping_add(word.load(Ordering::Relaxed)));
            let (before, unchanged) = self.watched.entry(live.index).or_insert((total, 0));
            *unchanged = if *before == total { *unchanged + 1 } else { 0 };
            *before = total;
        }
        let unchanged = |live: &LiveGroup| self.watched.get(&live.index).map_or(0, |(_, unchanged)| *unchanged);
        let mut idle: Vec<LiveGroup> = self.live.iter().filter(|live| unchanged(live) > IDLE).cloned().collect();
        idle.sort_by_key(|live| std::cmp::Reverse(unchanged(live)));
        idle.truncate(self.starts.len().div_ceil(4));
        // Removed groups are read once more, because packets may have arrived since.
        self.remove(idle);
    }

    fn remove(&mut self, groups: Vec<LiveGroup>) {
        for live in &groups {
            match self.groups.remove(&live.group) {
                Ok(()) => self.leaving.push(live.index),
                Err(error) => tracing::debug!("cannot remove a group of packets: {error}"),
            }
            self.watched.remove(&live.index);
        }
        let remains = |live: &&LiveGroup| !self.leaving.contains(&live.index);
        let used: BTreeSet<Interface> = self.live.iter().filter(remains).map(|live| live.group.interface).collect();
        let interfaces: BTreeSet<Interface> = groups.iter().map(|live| live.group.interface).collect();
        interfaces.difference(&used).for_each(|interface| self.groups.forget(*interface));
    }

    fn give(&mut self, index: GroupIndex) {
        if let Err(error) = self.groups.give(index) {
            tracing::warn!("cannot provide a group number to the eBPF programs; one group less is available: {error}");
        }
    }
}

/// Returns the values of `undercurrent.reason` for packets without a group.
pub fn loss_reasons() -> impl Iterator<Item = &'static str> {
    GroupLoss::ALL.into_iter().map(reason)
}

/// Returns the value of `undercurrent.reason`.
const fn reason(loss: GroupLoss) -> &'static str {
    match loss {
        GroupLoss::UnknownInterface => "unknown_interface",
        GroupLoss::GroupLimit => "group_limit",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_in_code_have_the_exported_names() {
        for loss in GroupLoss::ALL {
            assert_eq!(format!("{loss:?}").to_lowercase(), reason(loss).replace('_', ""));
        }
    }
}
