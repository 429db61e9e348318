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

use super::{
    durations::GROUP_LATENCY,
    latency::EXTRA_LATENCY,
    lost::{LOST, lost},
};
use crate::{
    kernel::{
        Kernel, KernelError,
        groups::{self, Groups},
        maps::{ByCpu, Words},
        memory::{ByFunction, ByWorkload},
    },
    options::Dimensions,
    telemetry::{Attributes, Metric, UnixNanos, Value},
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
    cells: Cells,
    losses: ByCpu<GroupCells>,
    by: Dimensions,
    /// The inode of this process's network namespace.
    here: Option<u32>,
    /// The start time of each number.
    starts: Vec<UnixNanos>,
    live: Vec<Live>,
    /// Numbers of removed groups. They become free at the next update, because programs may still write to them.
    leaving: Vec<u32>,
    /// The total of each number's cells at the last update, and the number of updates without change. Empty while
    /// numbers are free.
    watched: HashMap<u32, (u64, u32)>,
    start: UnixNanos,
}

/// A group of packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// The number of the group.
    pub number: u32,
    /// The workload of the group.
    pub slot: Slot,
    /// The attributes that the group adds to a point.
    pub attributes: Vec<(&'static str, Value)>,
    /// The start time of the group's measurements.
    pub start: UnixNanos,
    group: Group,
    named: bool,
}

impl Live {
    /// Returns the index of the group's histograms in the group map.
    #[must_use]
    pub fn index(&self) -> Slot {
        Slot(u16::try_from(self.number).unwrap_or(u16::MAX))
    }

    /// Adds the group's attributes to the attributes of a point.
    #[must_use]
    pub fn add_attributes(&self, attributes: Attributes) -> Attributes {
        self.attributes.iter().fold(attributes, |all, (key, value)| all.with(*key, value.clone()))
    }
}

/// The cells of groups: the histograms of all layers, and the histograms of `extra_layers`.
struct Cells {
    histograms: Words,
    by_series: ByWorkload,
    functions: Words,
    by_function: ByFunction,
}

impl Cells {
    fn open(kernel: &Kernel) -> Result<Self, KernelError> {
        Ok(Self {
            histograms: kernel.words(&GROUP_LATENCY)?,
            by_series: kernel.histograms(),
            functions: kernel.words(&EXTRA_LATENCY)?,
            by_function: kernel.by_function(),
        })
    }

    fn of(&self, number: u32) -> impl Iterator<Item = &AtomicU64> {
        let series = number as usize * self.by_series.group();
        let functions = self.by_function.group(number) * self.by_function.owner();
        let series = self.histograms.slice(series..series + self.by_series.group());
        series.iter().chain(self.functions.slice(functions..functions + self.by_function.owner()))
    }

    fn total(&self, number: u32) -> u64 {
        self.of(number).fold(0, |total, word| total.wrapping_add(word.load(Ordering::Relaxed)))
    }

    fn clear(&self, number: u32) {
        self.of(number).for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

impl Grouping {
    /// Enables grouping in the eBPF programs, with at most `limit` groups.
    ///
    /// # Errors
    /// If a map is not available.
    pub fn open(kernel: &mut Kernel, by: Dimensions, limit: u16, start: UnixNanos) -> Result<Self, KernelError> {
        let mut grouping = Self {
            groups: kernel.groups(),
            cells: Cells::open(kernel)?,
            losses: kernel.by_cpu(&groups::LOSSES)?,
            by,
            here: fs::metadata(HERE).ok().and_then(|file| u32::try_from(file.ino()).ok()),
            starts: vec![start; limit.into()],
            live: Vec::new(),
            leaving: Vec::new(),
            watched: HashMap::new(),
            start,
        };
        (0..u32::from(limit)).for_each(|number| grouping.give(number));
        Ok(grouping)
    }

    /// Returns the groups as of the last update.
    #[must_use]
    pub fn live(&self) -> &[Live] {
        &self.live
    }

    /// Removes the groups of a workload before another workload receives its slot.
    pub fn forget(&mut self, slot: Slot) {
        let (theirs, others) = std::mem::take(&mut self.live).into_iter().partition(|live| live.slot == slot);
        self.live = others;
        self.remove(theirs);
    }

    /// Finds new groups, and removes idle groups if no number is free.
    pub fn look(&mut self, now: UnixNanos) {
        // The last snapshot included all values that programs wrote while a group was removed.
        for number in std::mem::take(&mut self.leaving) {
            self.cells.clear(number);
            self.starts[number as usize] = now;
            self.give(number);
        }
        let known: HashMap<u32, Live> = self.live.drain(..).map(|live| (live.number, live)).collect();
        let found = self.groups.all().unwrap_or_else(|error| {
            tracing::warn!("cannot read the groups of packets: {error}");
            Vec::new()
        });
        let found = found.into_iter().filter(|(_, number)| (*number as usize) < self.starts.len());
        let known_group =
            |group, number: &u32| known.get(number).filter(|live| live.named && live.group == group).cloned();
        self.live = found
            .map(|(group, number)| known_group(group, &number).unwrap_or_else(|| self.new_group(group, number)))
            .collect();
        if self.live.len() < self.starts.len() {
            self.watched.clear();
        } else {
            self.remove_idle();
        }
    }

    /// Returns the losses of grouping, by reason.
    #[must_use]
    pub fn lost(&self) -> Metric {
        let mut counts = GroupLoss::ALL.map(|_| 0);
        self.losses.for_each(|_, cells| counts.iter_mut().zip(cells.lost).for_each(|(count, lost)| *count += lost));
        let point =
            |(loss, count)| lost(super::latency::KIND.signal, reason(loss), Attributes::new(), count, self.start);
        Metric { descriptor: &LOST, points: GroupLoss::ALL.into_iter().zip(counts).map(point).collect() }
    }

    fn new_group(&self, group: Group, number: u32) -> Live {
        let Group { interface, slot } = group;
        let (mut attributes, mut named) = (Vec::new(), true);
        if self.by.contains(Dimension::Interface) {
            let name = self.groups.name(interface).or_else(|| self.name_here(interface));
            named = name.is_some();
            // `ip link` shows this form for links in other namespaces.
            let name = name.unwrap_or_else(|| format!("if{}", interface.index));
            attributes.push((super::attributes::INTERFACE.key, super::attributes::interface(&name)));
        }
        if self.by.contains(Dimension::Namespace) {
            attributes.push((super::attributes::NAMESPACE.key, interface.namespace.into()));
        }
        let slot = Slot(u16::try_from(slot).unwrap_or(Slot::NODE.0));
        Live { number, slot, attributes, start: self.starts[number as usize], group, named }
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
            let total = self.cells.total(live.number);
            let (before, looks) = self.watched.entry(live.number).or_insert((total, 0));
            *looks = if *before == total { *looks + 1 } else { 0 };
            *before = total;
        }
        let looks = |live: &Live| self.watched.get(&live.number).map_or(0, |(_, looks)| *looks);
        let mut idle: Vec<Live> = self.live.iter().filter(|live| looks(live) > IDLE).cloned().collect();
        idle.sort_by_key(|live| std::cmp::Reverse(looks(live)));
        idle.truncate(self.starts.len().div_ceil(4));
        // Removed groups are read once more, because packets may have arrived since.
        self.remove(idle);
    }

    fn remove(&mut self, groups: Vec<Live>) {
        for live in &groups {
            match self.groups.remove(&live.group) {
                Ok(()) => self.leaving.push(live.number),
                Err(error) => tracing::debug!("cannot remove a group of packets: {error}"),
            }
            self.watched.remove(&live.number);
        }
        let remains = |live: &&Live| !self.leaving.contains(&live.number);
        let used: BTreeSet<Interface> = self.live.iter().filter(remains).map(|live| live.group.interface).collect();
        let interfaces: BTreeSet<Interface> = groups.iter().map(|live| live.group.interface).collect();
        interfaces.difference(&used).for_each(|interface| self.groups.forget(*interface));
    }

    fn give(&mut self, number: u32) {
        if let Err(error) = self.groups.give(number) {
            tracing::warn!("cannot provide a group number to the eBPF programs; one group less is available: {error}");
        }
    }
}

/// Returns the values of `undercurrent.reason` for packets without a group.
pub fn reasons() -> impl Iterator<Item = &'static str> {
    GroupLoss::ALL.into_iter().map(reason)
}

/// Returns the value of `undercurrent.reason`.
const fn reason(loss: GroupLoss) -> &'static str {
    match loss {
        GroupLoss::Unknown => "unknown_interface",
        GroupLoss::Limit => "group_limit",
    }
}
