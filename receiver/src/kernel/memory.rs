//! What the maps take: sized at start from CPUs, signals and the limit of workloads.

use std::mem::size_of;

use undercurrent_ebpf::abi::{
    driver::{NICS, NicCells},
    drops, extra,
    group::{GROUPED, GroupCells},
    latency::{DurationCells, IpVersion, SERIES, waiting},
    retransmits,
    softirq::SoftirqCells,
    transmit::{SETS, SetOfWays, TransmitLayer},
    workload::{OWNERS, OwnerCells, SOCKETS, Slot},
};

use super::{
    choices::{CHOICES, Criteria, ENTRY},
    groups::{self, GroupBy},
};
use crate::telemetry::Scale;

/// The most shards that a workload's histograms have: more CPUs share them. They are most of the memory.
const MAX_SHARDS: usize = 16;
/// Bytes of the ring that cgroups' changes come through.
const RING: usize = 256 * 1024;
/// The smallest ring on every architecture's page size.
const SMALLEST_RING: usize = 64 * 1024;

/// What decides how large maps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing<'a> {
    /// Possible CPUs.
    pub cpus: usize,
    /// The histograms' scale.
    pub scale: Scale,
    /// The signals that are on, by name.
    pub signals: &'a [&'static str],
    /// What packets are chosen by.
    pub criteria: Criteria,
    /// What packets are told apart by.
    pub group_by: GroupBy,
    /// Workloads with slots of their own; `None` where nothing is told apart by workload.
    pub workloads: Option<u16>,
    /// Functions that the user names as layers.
    pub functions: usize,
}

impl Sizing<'_> {
    fn on(&self, signal: &str) -> bool {
        self.signals.contains(&signal)
    }

    /// Whether durations of any series are recorded.
    fn records_durations(&self) -> bool {
        self.on("latency") || self.on("receive_wait") || self.on("tcp_rtt") || self.on("transmit")
    }

    /// Slots, those of the node and of the overflow included.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.workloads.map_or(0, |limit| usize::from(limit) + usize::from(Slot::FIRST.0))
    }

    /// Groups at most.
    #[must_use]
    pub fn groups(&self) -> usize {
        let grouped = ["latency", "receive_wait", "transmit"].iter().any(|signal| self.on(signal));
        if grouped { self.group_by.limit().into() } else { 0 }
    }

    /// Where workloads' latency histograms lie.
    #[must_use]
    pub const fn by_workload(&self) -> ByWorkload {
        let shards = self.cpus.next_power_of_two();
        let shards = if shards > MAX_SHARDS { MAX_SHARDS } else { shards };
        ByWorkload { shards, shared: self.cpus > shards, histogram: 1 + self.scale.buckets() }
    }

    /// Where the histograms of functions that the user names lie.
    #[must_use]
    pub fn by_function(&self) -> ByFunction {
        let cell = extra::cell(self.scale.buckets());
        let shard = self.functions * IpVersion::ALL.len() * cell;
        // The node's are there in any case.
        ByFunction { shards: self.by_workload().shards, cell, shard, groups: self.slots().max(1) }
    }

    /// Bytes of all maps.
    #[must_use]
    pub fn bytes(&self) -> usize {
        MAPS.iter().map(|map| map.bytes(self)).sum()
    }
}

/// How workloads' histograms lie in `WORKLOAD_LATENCY`: by slot, then by shard, then by series, each a sum and its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByWorkload {
    /// A power of two; CPU `n` writes to shard `n % shards`.
    pub shards: usize,
    /// Whether several CPUs write to a shard.
    pub shared: bool,
    /// Words of one histogram.
    pub histogram: usize,
}

impl ByWorkload {
    /// Words of a slot.
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.shards * SERIES * self.histogram
    }

    /// Words of a group in `GROUP_LATENCY`, where they lie alike.
    #[must_use]
    pub const fn group(&self) -> usize {
        self.shards * GROUPED * self.histogram
    }
}

/// How these histograms lie in `EXTRA_LATENCY`: by owner, slots and then groups, then by shard, then by function and IP version a cell of
/// [`extra`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByFunction {
    /// As [`ByWorkload`] has them.
    pub shards: usize,
    /// Words of one cell.
    pub cell: usize,
    /// Words of one shard.
    pub shard: usize,
    /// The first group's place among owners.
    pub groups: usize,
}

impl ByFunction {
    /// Words of an owner.
    #[must_use]
    pub const fn owner(&self) -> usize {
        self.shards * self.shard
    }

    /// A group's place among owners.
    #[must_use]
    pub const fn group(&self, number: u32) -> usize {
        self.groups + number as usize
    }
}

/// A map whose size depends on the machine and the settings.
pub struct PlannedMap {
    /// The map's symbol.
    pub name: &'static str,
    entry: usize,
    entries: fn(&Sizing<'_>) -> usize,
}

impl PlannedMap {
    /// Bytes of kernel memory.
    #[must_use]
    pub fn bytes(&self, sizing: &Sizing<'_>) -> usize {
        self.entry * self.entries(sizing)
    }

    /// Entries, at least one: the kernel wants it so. Of a ring bytes.
    #[must_use]
    pub fn entries(&self, sizing: &Sizing<'_>) -> usize {
        (self.entries)(sizing).max(1)
    }
}

/// Every such map.
pub static MAPS: [PlannedMap; 20] = [
    PlannedMap {
        name: "LATENCY",
        entry: size_of::<DurationCells>(),
        entries: |sizing| if sizing.records_durations() { sizing.cpus } else { 0 },
    },
    PlannedMap {
        name: "WORKLOAD_LATENCY",
        entry: size_of::<u64>(),
        entries: |sizing| if sizing.records_durations() { sizing.slots() * sizing.by_workload().slot() } else { 0 },
    },
    PlannedMap {
        name: "EXTRA_LATENCY",
        entry: size_of::<u64>(),
        entries: |sizing| {
            let ByFunction { shards, shard, groups, .. } = sizing.by_function();
            if sizing.on("latency") { (groups + sizing.groups()) * shards * shard } else { 0 }
        },
    },
    PlannedMap {
        name: "WAITING",
        entry: size_of::<u64>(),
        entries: |sizing| if sizing.on("receive_wait") { waiting::ENTRIES } else { 0 },
    },
    PlannedMap { name: CHOICES, entry: ENTRY, entries: |sizing| sizing.criteria.most() },
    PlannedMap {
        name: "GROUP_LATENCY",
        entry: size_of::<u64>(),
        entries: |sizing| sizing.groups() * sizing.by_workload().group(),
    },
    PlannedMap { name: groups::GROUPS, entry: ENTRY, entries: |sizing| sizing.groups() },
    PlannedMap { name: groups::FREE, entry: size_of::<u32>(), entries: |sizing| sizing.groups() },
    PlannedMap { name: groups::INTERFACES, entry: ENTRY, entries: |sizing| sizing.groups() },
    PlannedMap {
        name: "GROUP_LOSSES",
        entry: size_of::<GroupCells>(),
        entries: |sizing| if sizing.groups() > 0 { sizing.cpus } else { 0 },
    },
    PlannedMap {
        name: "DEPARTING",
        entry: size_of::<SetOfWays>(),
        entries: |sizing| if sizing.on("transmit") { TransmitLayer::ALL.len() * SETS } else { 0 },
    },
    PlannedMap {
        name: "SOFTIRQ",
        entry: size_of::<SoftirqCells>(),
        entries: |sizing| if sizing.on("network_cpu") || sizing.on("softirq_wait") { sizing.cpus } else { 0 },
    },
    PlannedMap {
        name: "DRIVER",
        entry: size_of::<NicCells>(),
        entries: |sizing| if sizing.on("receive_driver") { sizing.cpus * NICS } else { 0 },
    },
    PlannedMap {
        name: "RETRANSMITS",
        entry: size_of::<u64>(),
        // The node's are there in any case.
        entries: |sizing| if sizing.on("tcp_retransmits") { sizing.slots().max(1) * retransmits::WORDS } else { 0 },
    },
    PlannedMap {
        name: "DROPS",
        entry: size_of::<u64>(),
        entries: |sizing| if sizing.on("network_drops") { sizing.cpus * drops::COUNTS } else { 0 },
    },
    PlannedMap {
        name: "WORKLOAD_DROPS",
        entry: size_of::<u64>(),
        entries: |sizing| if sizing.on("network_drops") { sizing.slots() * drops::COUNTS } else { 0 },
    },
    PlannedMap { name: "OWNERS", entry: size_of::<u64>(), entries: |sizing| sizing.workloads.map_or(0, |_| OWNERS) },
    PlannedMap { name: "SOCKETS", entry: size_of::<u64>(), entries: |sizing| sizing.workloads.map_or(0, |_| SOCKETS) },
    PlannedMap {
        name: "OWNER_LOSSES",
        entry: size_of::<OwnerCells>(),
        entries: |sizing| sizing.workloads.map_or(0, |_| sizing.cpus),
    },
    PlannedMap { name: "CGROUPS", entry: 1, entries: |sizing| sizing.workloads.map_or(SMALLEST_RING, |_| RING) },
];

#[cfg(test)]
mod tests {
    use undercurrent_ebpf::abi::{group::Dimension, loss::PACKET_LOSSES};

    use super::*;
    use crate::{config::MemoryLimit, kernel::object::SWITCHES};

    const MIB: usize = 1 << 20;
    fn sizing(cpus: usize, workloads: u16, scale: u8) -> Sizing<'static> {
        let scale = Scale::new(scale).expect("a scale");
        Sizing {
            cpus,
            scale,
            signals: &SWITCHES,
            criteria: Criteria::default(),
            group_by: GroupBy::default(),
            workloads: Some(workloads),
            functions: 0,
        }
    }

    fn bytes(sizing: &Sizing<'_>, name: &str) -> usize {
        MAPS.iter().find(|map| map.name == name).expect("a map").bytes(sizing)
    }

    #[test]
    fn a_hundred_workloads_on_64_cpus_take_64_mib_at_most() {
        assert!(sizing(64, 100, 2).bytes() < 64 * MIB, "{}", sizing(64, 100, 2).bytes());
        // At the finest scale, whose histograms are twice as long.
        assert!(sizing(64, 100, 3).bytes() < 112 * MIB, "{}", sizing(64, 100, 3).bytes());
    }

    #[test]
    fn the_defaults_fit_the_default_limit_on_any_number_of_cpus() {
        let defaults = sizing(512, crate::config::Workloads::default().limit, 2).bytes() as u64;
        assert!(defaults < MemoryLimit::DEFAULT.bytes(), "{defaults}");
    }

    #[test]
    fn shards_are_as_many_as_cpus_and_sixteen_at_most() {
        let shards = |cpus| sizing(cpus, 1, 2).by_workload();
        assert_eq!([1, 2, 3, 16, 17, 256].map(|cpus| shards(cpus).shards), [1, 2, 4, 16, 16, 16]);
        assert_eq!([1, 2, 3, 16, 17, 256].map(|cpus| shards(cpus).shared), [false, false, false, false, true, true]);
    }

    #[test]
    fn named_functions_take_their_own_memory_and_no_other() {
        let without = sizing(64, 100, 2);
        let with = Sizing { functions: 3, ..without };
        let map = |sizing: &Sizing<'_>| bytes(sizing, "EXTRA_LATENCY");
        // 102 slots, shards, a cell for each IP version: a sum, 114 slots and losses by reason.
        let function = MAX_SHARDS * 2 * (1 + 114 + PACKET_LOSSES) * 8;
        assert_eq!((map(&without), map(&with)), (8, 102 * 3 * function));
        assert_eq!(with.bytes() - without.bytes(), map(&with) - map(&without));
        assert_eq!(map(&Sizing { workloads: None, ..with }), 3 * function);
        assert_eq!(map(&Sizing { signals: &["receive_wait"], ..with }), 8);
    }

    #[test]
    fn groups_take_memory_where_packets_are_told_apart() {
        let without = sizing(16, 100, 2);
        let group_by = |dimensions: &[Dimension]| GroupBy::new(dimensions.iter().copied(), 64);
        assert_eq!(group_by(&[]), GroupBy::default());
        let with = Sizing { group_by: group_by(&[Dimension::Interface]), ..without };
        // 64 groups, 16 shards, 14 paths, 4 waits and 6 parts of the way out, each a sum and 114 slots.
        let histograms = 64 * 16 * 24 * (1 + 114) * 8;
        assert_eq!((bytes(&without, "GROUP_LATENCY"), bytes(&with, "GROUP_LATENCY")), (8, histograms));
        assert_eq!(Sizing { signals: &["tcp_rtt"], ..with }.groups(), 0);
        let named = [without, with].map(|sizing| bytes(&Sizing { functions: 1, ..sizing }, "EXTRA_LATENCY"));
        assert_eq!(named[1], named[0] / 102 * (102 + 64), "groups come after the slots");
    }

    #[test]
    fn what_is_off_takes_nothing_but_the_smallest_map() {
        let off = Sizing {
            cpus: 64,
            scale: Scale::new(2).expect("a scale"),
            signals: &[],
            criteria: Criteria::default(),
            group_by: GroupBy::default(),
            workloads: None,
            functions: 0,
        };
        assert!(MAPS.iter().filter(|map| map.name != "CGROUPS").all(|map| map.entries(&off) == 1));
        assert!(off.bytes() < 2 * SMALLEST_RING);
    }
}
