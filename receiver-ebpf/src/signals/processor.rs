//! Counters of the processor by workload, read when a CPU switches to another task and around network softirqs.
//!
//! `perf_event_read_local` reads only the counters of its own CPU. So a CPU cannot read the cycles of its hyper-thread sibling.
//! Instead, each CPU publishes its busy time, and the overlap of both is computed in time.

use aya_ebpf::{
    bindings::{BPF_F_CURRENT_CPU, bpf_perf_event_value},
    helpers::generated::bpf_perf_event_read_value,
    macros::map,
    maps::{Array, PerfEventArray},
};
use undercurrent_ebpf::abi::processor::{self, COUNTERS, Counter, INTERRUPTED, ProcessorCells, SHARED_CYCLES, busy};

use super::switch;
use crate::kernel::{
    cells::{self, ByCpu, MMAPABLE},
    clock, load_time_value,
    owner::{or_node, slot_of_current},
    shard,
};

switch!("processor");

/// Bits of the counters that this processor has; see [`Counter::bit`].
#[unsafe(export_name = "processor.counters")]
#[unsafe(link_section = ".rodata.flags")]
static COUNTED: u32 = 0;

/// The state of each CPU.
#[map]
static PROCESSOR: ByCpu<ProcessorCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// Counters by slot, shard and word.
#[map]
static PROCESSOR_USE: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// The sibling of each CPU, plus one; zero for a CPU without a sibling.
#[map]
static SIBLINGS: Array<u32> = Array::with_max_entries(1, 0);

/// The perf events of each CPU, by counter.
#[map]
static CYCLES: PerfEventArray<u64> = PerfEventArray::new(0);
#[map]
static INSTRUCTIONS: PerfEventArray<u64> = PerfEventArray::new(0);
#[map]
static CACHE_REFERENCES: PerfEventArray<u64> = PerfEventArray::new(0);
#[map]
static CACHE_MISSES: PerfEventArray<u64> = PerfEventArray::new(0);

/// Returns the state of this CPU if counters are measured.
#[inline(always)]
fn here() -> Option<&'static mut ProcessorCells> {
    if enabled() && load_time_value(&COUNTED) != 0 { cells::here(&PROCESSOR) } else { None }
}

/// Handles a switch from the current task to another one. The idle task is charged nothing.
#[inline(always)]
pub fn switched(from: u32, to: u32) {
    if let Some(cells) = here() {
        let now = clock::monotonic();
        let grown = read(cells, now);
        let used = busy::until(cells.published, now);
        cells.published = busy::publish(used, now, to != 0);
        if from != 0 {
            charge(&grown);
        }
    }
}

/// Handles the start of a network softirq: the interrupted task is charged until now.
#[inline(always)]
pub fn interrupted(is_idle: impl FnOnce() -> bool) {
    if let Some(cells) = here() {
        let grown = read(cells, clock::monotonic());
        cells.in_softirq = 1;
        if !is_idle() {
            charge(&grown);
        }
    }
}

/// Handles the end of a network softirq, which has its own counts.
#[inline(always)]
pub fn resumed() {
    if let Some(cells) = here() {
        let grown = read(cells, clock::monotonic());
        // A softirq that began before the programs were attached counts for the interrupted task.
        if cells.in_softirq != 0 {
            for (sum, grown) in cells.softirqs.iter_mut().zip(grown) {
                *sum += grown;
            }
        }
        cells.in_softirq = 0;
    }
}

/// Handles a tick of this CPU, so that a task that never switches is read too.
#[inline(always)]
pub fn ticked(is_idle: impl FnOnce() -> bool) {
    if let Some(cells) = here()
        && cells.in_softirq == 0
    {
        let grown = read(cells, clock::monotonic());
        if !is_idle() {
            charge(&grown);
        }
    }
}

/// Adds time in nanoseconds for which a network softirq interrupted the current task.
#[inline(always)]
pub fn delay(nanoseconds: u64) {
    let first = shard::here(or_node(slot_of_current).0.into()) * processor::WORDS as u32;
    shard::add(&PROCESSOR_USE, first + INTERRUPTED as u32, nanoseconds);
}

/// Adds growth to the current task's workload.
#[inline(always)]
fn charge(grown: &[u64; COUNTERS + 1]) {
    let first = shard::here(or_node(slot_of_current).0.into()) * processor::WORDS as u32;
    for counter in Counter::ALL {
        if load_time_value(&COUNTED) & counter.bit() != 0 {
            shard::add(&PROCESSOR_USE, first + counter as u32, grown[counter as usize]);
        }
    }
    if grown[SHARED_CYCLES] != 0 {
        shard::add(&PROCESSOR_USE, first + SHARED_CYCLES as u32, grown[SHARED_CYCLES]);
    }
}

/// Returns the growth of each counter since the last reading, and of the cycles beside a busy sibling. The first reading has
/// none.
#[inline(always)]
fn read(cells: &mut ProcessorCells, now: u64) -> [u64; COUNTERS + 1] {
    let mut grown = [0; COUNTERS + 1];
    let maps = [&raw const CYCLES, &raw const INSTRUCTIONS, &raw const CACHE_REFERENCES, &raw const CACHE_MISSES];
    for counter in Counter::ALL {
        if load_time_value(&COUNTED) & counter.bit() != 0 {
            grown[counter as usize] = growth(cells, counter, maps[counter as usize]);
        }
    }
    let length = now.saturating_sub(cells.read);
    let is_first = cells.read == 0;
    cells.read = now;
    if let Some(used) = sibling(now) {
        let overlap = used.saturating_sub(cells.sibling);
        cells.sibling = used;
        grown[SHARED_CYCLES] = processor::proportion(grown[Counter::Cycles as usize], overlap.min(length), length);
    }
    if is_first { [0; COUNTERS + 1] } else { grown }
}

/// Returns the growth of a counter, scaled if the kernel multiplexed it.
#[inline(always)]
fn growth(cells: &mut ProcessorCells, counter: Counter, map: *const PerfEventArray<u64>) -> u64 {
    let mut value = bpf_perf_event_value { counter: 0, enabled: 0, running: 0 };
    let size = size_of::<bpf_perf_event_value>() as u32;
    // SAFETY: the map holds perf events, and the buffer has the given size.
    let status =
        unsafe { bpf_perf_event_read_value(map.cast_mut().cast(), BPF_F_CURRENT_CPU.into(), &raw mut value, size) };
    if status != 0 {
        cells.failed += 1;
        return 0;
    }
    let last = &mut cells.last[counter as usize];
    // A tick may interrupt a softirq's program between its reading and its use.
    let growth = value.counter.saturating_sub(last.value);
    let (enabled, running) = (value.enabled.saturating_sub(last.enabled), value.running.saturating_sub(last.running));
    last.value = value.counter;
    last.enabled = value.enabled;
    last.running = value.running;
    if enabled == running {
        return growth;
    }
    cells.scaled += 1;
    processor::proportion(growth, enabled, running)
}

/// Returns the busy time of this CPU's sibling until `now`; `None` without a sibling.
#[inline(always)]
fn sibling(now: u64) -> Option<u64> {
    // SAFETY: the helper has no arguments.
    let cpu = unsafe { aya_ebpf::helpers::bpf_get_smp_processor_id() };
    let sibling = SIBLINGS.get(cpu)?.checked_sub(1)?;
    let cells = PROCESSOR.get_ptr(sibling)?;
    // SAFETY: an entry of the map, which lives as long as the program. The word is read at once.
    Some(busy::until(unsafe { (&raw const (*cells).published).read_volatile() }, now))
}
