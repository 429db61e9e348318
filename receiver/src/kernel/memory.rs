//! What the maps take: sized at start from CPUs, signals and the limit of workloads.

use undercurrent_ebpf::abi::{
    extra,
    group::GROUPED,
    latency::{IpVersion, SERIES},
    workload::Slot,
};

use super::{filter_map::FilterKeys, groups::GroupBy};
use crate::telemetry::Scale;

/// The most shards that a workload's histograms have: more CPUs share them. They are most of the memory.
const MAX_SHARDS: usize = 16;
/// What decides how large maps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// Possible CPUs.
    pub cpus: usize,
    /// The histograms' scale.
    pub scale: Scale,
    /// What packets are chosen by.
    pub filter_keys: FilterKeys,
    /// What packets are told apart by.
    pub group_by: GroupBy,
    /// Workloads with slots of their own; `None` where nothing is told apart by workload.
    pub workloads: Option<u16>,
    /// Functions that the user names as layers.
    pub functions: usize,
}

impl Sizing {
    /// Slots, those of the node and of the overflow included.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.workloads.map_or(0, |limit| usize::from(limit) + usize::from(Slot::FIRST.0))
    }

    /// Groups at most.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.group_by.limit().into()
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

/// A map whose size depends on the machine and the settings. Each is declared by the module that reads it.
#[derive(Debug)]
pub struct PlannedMap {
    /// The map's symbol.
    pub name: &'static str,
    /// Bytes of an entry.
    entry: usize,
    entries: fn(&Sizing) -> usize,
}

impl PlannedMap {
    /// A map of entries with this size in bytes. `entries` computes their number, while something uses the map.
    #[must_use]
    pub const fn new(name: &'static str, entry: usize, entries: fn(&Sizing) -> usize) -> Self {
        Self { name, entry, entries }
    }

    /// The size on a machine, and if nothing uses the map the smallest size.
    #[must_use]
    pub fn size(&self, sizing: &Sizing, is_used: bool) -> MapSize {
        MapSize { name: self.name, entry: self.entry, entries: if is_used { (self.entries)(sizing) } else { 0 } }
    }
}

/// A map with its size on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSize {
    /// The map's symbol.
    pub name: &'static str,
    entry: usize,
    entries: usize,
}

impl MapSize {
    /// Bytes of kernel memory.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.entry * self.entries()
    }

    /// Entries, at least one, because the kernel refuses empty maps. Of a ring bytes.
    #[must_use]
    pub const fn entries(&self) -> usize {
        if self.entries == 0 { 1 } else { self.entries }
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_as_many_as_cpus_and_sixteen_at_most() {
        let sizing = |cpus| Sizing {
            cpus,
            scale: Scale::new(2).expect("a scale"),
            filter_keys: FilterKeys::default(),
            group_by: GroupBy::default(),
            workloads: Some(1),
            functions: 0,
        };
        let shards = |cpus| sizing(cpus).by_workload();
        assert_eq!([1, 2, 3, 16, 17, 256].map(|cpus| shards(cpus).shards), [1, 2, 4, 16, 16, 16]);
        assert_eq!([1, 2, 3, 16, 17, 256].map(|cpus| shards(cpus).shared), [false, false, false, false, true, true]);
    }
}
