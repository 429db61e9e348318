//! A large node's maps, without its kernel.

use std::{
    fs::File,
    os::fd::AsFd as _,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::Context as _;
use rustix::fs::{MemfdFlags, memfd_create};
use undercurrent::{
    kernel::{
        filter_map::FilterKeys,
        groups::GroupBy,
        maps::{ByCpu, Words},
        memory::{PlannedMap, Sizing},
    },
    signals::{Durations, LATENCY, SlotHistograms, durations},
    telemetry::{Scale, UnixNanos},
};
use undercurrent_ebpf::abi::latency::{DurationCells, SERIES, Series};

/// Its CPUs.
pub const CPUS: usize = 64;
/// Its workloads, each with packets on all of the paths.
pub const WORKLOADS: u16 = 100;
/// More than any processor's caches hold.
pub const CACHES: usize = 128 << 20;
/// Paths that every workload has packets on, of those that are served.
const BUSY: usize = 6;
/// Buckets that a path's packets fall into: from microseconds to milliseconds, at the default scale.
const BUCKETS: std::ops::Range<usize> = 20..60;

/// The signal of such a node, where every path is served, and how many bytes a tick reads.
pub fn latency() -> anyhow::Result<(Durations, usize)> {
    let scale = Scale::new(2).context("the default scale")?;
    let sizing = Sizing {
        cpus: CPUS,
        scale,
        filter_keys: FilterKeys::default(),
        group_by: GroupBy::default(),
        workloads: Some(WORKLOADS),
        functions: 0,
    };
    let layout = sizing.by_workload();
    let (node, _) = map(&durations::LATENCY, &sizing)?;
    let (owned, count) = map(&durations::WORKLOAD_LATENCY, &sizing)?;
    let words = Words::map("WORKLOAD_LATENCY", owned.as_fd(), count)?;
    for histogram in words.slice(0..count).chunks_exact(SERIES * layout.histogram) {
        histogram.chunks_exact(layout.histogram).take(BUSY).for_each(fill);
    }
    let cells = ByCpu::<DurationCells>::map("LATENCY", node.as_fd(), CPUS)?;
    // Of all series a tick reads the signal's own.
    let all = usize::from(WORKLOADS) * layout.slot() * size_of::<u64>() + CPUS * size_of::<DurationCells>();
    let bytes = all * LATENCY.series.len() / SERIES;
    let owned = Some(SlotHistograms::new(words, layout, &LATENCY, scale));
    let served = Series::ALL.map(|series| matches!(series, Series::Receive(_)));
    Ok((Durations { kind: &LATENCY, cells, owned, grouped: None, scale, start: UnixNanos(1), served }, bytes))
}

/// Something of a map's size that can be mapped as one, and its words.
fn map(map: &PlannedMap, sizing: &Sizing) -> anyhow::Result<(File, usize)> {
    let bytes = map.size(sizing, true).bytes();
    let file = File::from(memfd_create(map.name, MemfdFlags::CLOEXEC)?);
    file.set_len(bytes as u64)?;
    Ok((file, bytes / size_of::<u64>()))
}

/// Packets of a histogram: one in the first bucket, two in the second.
fn fill(histogram: &[AtomicU64]) {
    let buckets = histogram[1..][BUCKETS].iter();
    buckets.zip(1..).for_each(|(bucket, count)| bucket.store(count, Ordering::Relaxed));
    histogram[0].store(1_000_000, Ordering::Relaxed);
}
