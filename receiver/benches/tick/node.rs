//! The maps of a large node, without the kernel.

use std::{
    fs::File,
    os::fd::AsFd as _,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::Context as _;
use rustix::fs::{MemfdFlags, memfd_create};
use undercurrent::{
    kernel::{
        maps::{ByCpu, Words},
        memory::{PlannedMap, Sizing},
    },
    signals::{Durations, LATENCY, LossConditions, SlotHistograms, durations},
    telemetry::{Scale, UnixNanos},
};
use undercurrent_ebpf::abi::{
    by_cpu::Entry,
    series::{DurationCells, SERIES, Series},
};

/// The number of CPUs.
pub const CPUS: usize = 64;
/// The number of workloads, each with packets on all paths in use.
pub const WORKLOADS: u16 = 100;
/// Larger than the caches of any processor.
pub const CACHES: usize = 128 << 20;
/// The number of enabled paths on which every workload has packets.
const BUSY: usize = 6;
/// The buckets of a path's packets: from microseconds to milliseconds, at the default scale.
const BUCKETS: std::ops::Range<usize> = 20..60;

/// Returns the latency signal of this node with every path enabled, and the number of bytes that a tick reads.
pub fn latency() -> anyhow::Result<(Durations, usize)> {
    let scale = Scale::new(2).context("the default scale")?;
    let sizing = Sizing { workloads: Some(WORKLOADS), ..Sizing::new(CPUS, scale) };
    let layout = sizing.by_workload();
    let (node, _) = map(&durations::LATENCY, &sizing)?;
    let (owned, count) = map(&durations::WORKLOAD_LATENCY, &sizing)?;
    let words = Words::map("WORKLOAD_LATENCY", owned.as_fd(), count)?;
    for histogram in words.slice(0..count).chunks_exact(SERIES * layout.histogram) {
        histogram.chunks_exact(layout.histogram).take(BUSY).for_each(fill);
    }
    let cells = ByCpu::<DurationCells>::map("LATENCY", node.as_fd(), CPUS)?;
    // A tick reads only the signal's series.
    let all = usize::from(WORKLOADS) * layout.slot() * size_of::<u64>() + CPUS * size_of::<Entry<DurationCells>>();
    let bytes = all * LATENCY.series.len() / SERIES;
    let owned = Some(SlotHistograms::new(words, layout, &LATENCY, scale));
    let served = Series::ALL.map(|series| matches!(series, Series::Receive(_)));
    let (start, losses) = (UnixNanos(1), LossConditions::ANY);
    Ok((Durations { kind: &LATENCY, cells, owned, grouped: None, scale, start, losses, served }, bytes))
}

/// Returns a mappable file of a map's size, and the number of its words.
fn map(map: &PlannedMap, sizing: &Sizing) -> anyhow::Result<(File, usize)> {
    let bytes = map.size(sizing, true).bytes();
    let file = File::from(memfd_create(map.name, MemfdFlags::CLOEXEC)?);
    file.set_len(bytes as u64)?;
    Ok((file, bytes / size_of::<u64>()))
}

/// Fills a histogram: one packet in the first bucket, two in the second.
fn fill(histogram: &[AtomicU64]) {
    let buckets = histogram[1..][BUCKETS].iter();
    buckets.zip(1..).for_each(|(bucket, count)| bucket.store(count, Ordering::Relaxed));
    histogram[0].store(1_000_000, Ordering::Relaxed);
}
