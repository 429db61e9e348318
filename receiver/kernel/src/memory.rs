//! The sizes of the maps, computed at start from CPUs, signals and the workload limit.

use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::{
    by_cpu::Entry, extra, group::GROUPED, latency::IpVersion, series::SERIES, workload::Slot,
};

use super::{
    constant::Constant,
    criteria::{self, FilterKeys, GroupBy},
};
use crate::{
    symbol::{self, Symbol},
    telemetry::Scale,
};

/// The maximum number of shards of a workload's histograms, which take most of the memory. Further CPUs share shards.
const MAX_SHARDS: usize = 16;

/// Bytes of an entry of a small hash map in the kernel: key, value and overhead.
pub(super) const HASH_ENTRY: usize = 64;

/// The inputs of map sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizing {
    /// The number of possible CPUs.
    pub cpus: usize,
    /// The histograms' scale.
    pub scale: Scale,
    /// The filter criteria of packets.
    pub filter_keys: FilterKeys,
    /// The grouping dimensions of packets.
    pub group_by: GroupBy,
    /// The number of workload slots; `None` if nothing is grouped by workload.
    pub workloads: Option<u16>,
    /// The number of functions that the user names as layers.
    pub functions: usize,
    /// The size of the ring of stacks in bytes.
    pub samples: usize,
    /// The number of edges between workloads and their peers, a power of two.
    pub edges: usize,
    /// True if socket calls are measured.
    pub socket_calls: bool,
    /// True if wakeups of readers are recorded.
    pub reader_states: bool,
}

impl Sizing {
    /// Returns the parameters without workloads, groups, filters and optional features.
    #[must_use]
    pub fn new(cpus: usize, scale: Scale) -> Self {
        Self {
            cpus,
            scale,
            filter_keys: FilterKeys::default(),
            group_by: GroupBy::default(),
            workloads: None,
            functions: 0,
            samples: 0,
            edges: 0,
            socket_calls: false,
            reader_states: false,
        }
    }

    /// Returns the number of slots, including the slots of the node and of the overflow.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.workloads.map_or(0, |limit| usize::from(limit) + usize::from(Slot::FIRST.0))
    }

    /// Returns the maximum number of groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.group_by.limit().into()
    }

    /// Returns the layout of the latency histograms of workloads.
    #[must_use]
    pub const fn by_workload(&self) -> ByWorkload {
        let shards = self.cpus.next_power_of_two();
        let shards = if shards > MAX_SHARDS { MAX_SHARDS } else { shards };
        ByWorkload { shards, shared: self.cpus > shards, histogram: 1 + self.scale.buckets() }
    }

    /// Returns the constants that describe the selection and the memory of packets, for all signals.
    #[must_use]
    pub fn constants(&self) -> Vec<Constant> {
        let of_packets = criteria::constants(self.filter_keys, self.group_by);
        of_packets.into_iter().chain(self.by_workload().constants()).collect()
    }

    /// Returns the layout of the histograms of functions that the user names.
    #[must_use]
    pub fn by_function(&self) -> ByFunction {
        let cell = extra::cell(self.scale.buckets());
        let shard = self.functions * IpVersion::ALL.len() * cell;
        // The node always has a slot.
        ByFunction { shards: self.by_workload().shards, cell, shard, groups: self.slots().max(1) }
    }
}

/// The layout of `WORKLOAD_LATENCY`: by slot, then by shard, then by series. A series is a sum and its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByWorkload {
    /// The number of shards, a power of two; CPU `n` writes to shard `n % shards`.
    pub shards: usize,
    /// True if several CPUs write to one shard.
    pub shared: bool,
    /// Words of one histogram.
    pub histogram: usize,
}

impl ByWorkload {
    /// Returns the words of a slot.
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.shards * SERIES * self.histogram
    }

    fn constants(self) -> [Constant; 3] {
        [
            Constant::size("workload.histogram", self.histogram),
            Constant::size("workload.shard_mask", self.shards - 1),
            Constant::flag("workload.shared", self.shared),
        ]
    }

    /// Returns the words of a group in `GROUP_LATENCY`, which has this layout too.
    #[must_use]
    pub const fn group(&self) -> usize {
        self.shards * GROUPED * self.histogram
    }
}

/// The layout of `EXTRA_LATENCY`: by slot or group (all slots first), then by shard, then by function and IP version.
/// Each has a cell of [`extra`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByFunction {
    /// The number of shards; see [`ByWorkload`].
    pub shards: usize,
    /// Words of one cell.
    pub cell: usize,
    /// Words of one shard.
    pub shard: usize,
    /// The index of the first group, after the slots.
    pub groups: usize,
}

impl ByFunction {
    /// Returns the words of a slot or group.
    #[must_use]
    pub const fn owner(&self) -> usize {
        self.shards * self.shard
    }
}

/// A map with a size that depends on the machine and the settings. The module that reads the map declares it.
#[derive(Debug)]
pub struct PlannedMap {
    /// The map's symbol.
    pub name: &'static str,
    /// Bytes of an entry.
    entry: usize,
    entries: fn(&Sizing) -> usize,
}

impl PlannedMap {
    /// Declares a map. `entry` is the size of an entry in bytes; `entries` computes the number of entries if used.
    #[must_use]
    pub const fn new(name: &'static str, entry: usize, entries: fn(&Sizing) -> usize) -> Self {
        Self { name, entry, entries }
    }

    /// Declares a map with entries of type `T` for CPUs.
    #[must_use]
    pub const fn by_cpu<T>(name: &'static str, entries: fn(&Sizing) -> usize) -> Self {
        Self::new(name, size_of::<Entry<T>>(), entries)
    }

    /// Returns the size on a machine; an unused map has the smallest size.
    #[must_use]
    pub fn size(&self, sizing: &Sizing, is_used: bool) -> MapSize {
        MapSize { name: self.name, entry: self.entry, entries: if is_used { (self.entries)(sizing) } else { 0 } }
    }
}

/// The size of a map on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapSize {
    /// The map's symbol.
    #[serde(deserialize_with = "symbol::deserialize")]
    pub name: Symbol,
    entry: usize,
    entries: usize,
}

impl MapSize {
    /// Returns the bytes of kernel memory.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.entry * self.entries()
    }

    /// Returns the number of entries, or the bytes of a ring buffer. At least one: the kernel refuses empty maps.
    #[must_use]
    pub const fn entries(&self) -> usize {
        if self.entries == 0 { 1 } else { self.entries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_shards_is_limited_to_sixteen() {
        let shards = |cpus| Sizing::new(cpus, Scale::DEFAULT).by_workload();
        assert_eq!([1, 2, 3, 16, 17, 256].map(|cpus| shards(cpus).shards), [1, 2, 4, 16, 16, 16]);
        assert_eq!([1, 2, 3, 16, 17, 256].map(|cpus| shards(cpus).shared), [false, false, false, false, true, true]);
    }
}
