//! What packets are told apart by beside their workload: groups come to be with their first packet, and go with their
//! workload, or when others need their numbers.

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
    itself::{LOST, lost},
    latency::EXTRA_LATENCY,
    timings::GROUP_LATENCY,
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

/// The namespace that names of interfaces are of where programs tell none.
const HERE: &str = "/proc/self/ns/net";
/// Looks in a row at which nothing has come before a group's number may be another's.
const IDLE: u32 = 10;

/// The groups, which several signals have histograms of.
pub type SharedGrouping = Rc<RefCell<Grouping>>;

/// Keeps groups.
pub struct Grouping {
    groups: Groups,
    cells: Cells,
    losses: ByCpu<GroupCells>,
    by: Dimensions,
    /// The inode of this process's network namespace.
    here: Option<u32>,
    /// Since when each number counts.
    starts: Vec<UnixNanos>,
    live: Vec<Live>,
    /// Groups that programs no longer find; their numbers are free at the next look.
    leaving: Vec<u32>,
    /// What each number's cells added up to at the last look, and at how many looks before: kept while no number is free.
    watched: HashMap<u32, (u64, u32)>,
    start: UnixNanos,
}

/// A group, by which points are told apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// The group's number.
    pub number: u32,
    /// The workload that it is of.
    pub slot: Slot,
    /// What its points say beside what they always do.
    pub attributes: Vec<(&'static str, Value)>,
    /// Since when it counts.
    pub start: UnixNanos,
    group: Group,
    named: bool,
}

impl Live {
    /// Where the group's histograms are among those of all groups.
    #[must_use]
    pub fn place(&self) -> Slot {
        Slot(u16::try_from(self.number).unwrap_or(u16::MAX))
    }

    /// What one of its points says, beside what it always does.
    #[must_use]
    pub fn tell_apart(&self, attributes: Attributes) -> Attributes {
        self.attributes.iter().fold(attributes, |all, (key, value)| all.with(*key, value.clone()))
    }
}

/// What belongs to groups: the histograms of all layers, and those of functions that the user names.
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
    /// Has programs tell packets apart, in at most so many groups.
    ///
    /// # Errors
    /// Where a map cannot be had.
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

    /// The groups that there were at the last look.
    #[must_use]
    pub fn live(&self) -> &[Live] {
        &self.live
    }

    /// Lets the groups of a workload go, whose slot another one will have: programs find nobody there any more.
    pub fn forget(&mut self, slot: Slot) {
        let (theirs, others) = std::mem::take(&mut self.live).into_iter().partition(|live| live.slot == slot);
        self.live = others;
        self.remove(theirs);
    }

    /// Looks for groups that have come, and makes room where there is none left.
    pub fn look(&mut self, now: UnixNanos) {
        // What programs were about to write when they went has been read since.
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
        let as_before =
            |group, number: &u32| known.get(number).filter(|live| live.named && live.group == group).cloned();
        self.live =
            found.map(|(group, number)| as_before(group, &number).unwrap_or_else(|| self.met(group, number))).collect();
        if self.live.len() < self.starts.len() {
            self.watched.clear();
        } else {
            self.make_room();
        }
    }

    /// What is in no group although it should be.
    #[must_use]
    pub fn lost(&self) -> Metric {
        let mut counts = GroupLoss::ALL.map(|_| 0);
        self.losses.for_each(|_, cells| counts.iter_mut().zip(cells.lost).for_each(|(count, lost)| *count += lost));
        let point =
            |(loss, count)| lost(super::latency::KIND.signal, reason(loss), Attributes::new(), count, self.start);
        Metric { descriptor: &LOST, points: GroupLoss::ALL.into_iter().zip(counts).map(point).collect() }
    }

    fn met(&self, group: Group, number: u32) -> Live {
        let Group { interface, slot } = group;
        let (mut attributes, mut named) = (Vec::new(), true);
        if self.by.contains(Dimension::Interface) {
            let name = self.groups.name(interface).or_else(|| self.name_here(interface));
            named = name.is_some();
            // As `ip link` writes a link of another namespace.
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

    /// Lets the groups go of which nothing has come for longest: a quarter of all at most, so that there is room for a while.
    fn make_room(&mut self) {
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
        // They are read once more: a packet may have come since.
        self.remove(idle);
    }

    fn remove(&mut self, groups: Vec<Live>) {
        for live in &groups {
            match self.groups.remove(&live.group) {
                Ok(()) => self.leaving.push(live.number),
                Err(error) => tracing::debug!("a group stays: {error}"),
            }
            self.watched.remove(&live.number);
        }
        let stays = |live: &&Live| !self.leaving.contains(&live.number);
        let used: BTreeSet<Interface> = self.live.iter().filter(stays).map(|live| live.group.interface).collect();
        let interfaces: BTreeSet<Interface> = groups.iter().map(|live| live.group.interface).collect();
        interfaces.difference(&used).for_each(|interface| self.groups.forget(*interface));
    }

    fn give(&mut self, number: u32) {
        if let Err(error) = self.groups.give(number) {
            tracing::warn!("there is one group less that packets can be told apart by: {error}");
        }
    }
}

/// The values of `undercurrent.reason` for packets that are in no group.
pub fn reasons() -> impl Iterator<Item = &'static str> {
    GroupLoss::ALL.into_iter().map(reason)
}

/// The value of `undercurrent.reason`.
const fn reason(loss: GroupLoss) -> &'static str {
    match loss {
        GroupLoss::Unknown => "unknown_interface",
        GroupLoss::Limit => "group_limit",
    }
}
