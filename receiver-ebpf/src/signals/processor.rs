//! Counters of the processor by workload, read when a CPU switches to another task and around network softirqs.
//!
//! `perf_event_read_local` reads only the counters of its own CPU. So a CPU cannot read the cycles of its hyper-thread sibling.
//! Instead, each CPU publishes its busy time, and the overlap of both is computed in time.

use aya_ebpf::{
    bindings::{BPF_F_CURRENT_CPU, bpf_perf_event_value},
    helpers::generated::{bpf_perf_event_read, bpf_perf_event_read_value},
    macros::map,
    maps::{Array, PerfEventArray},
};
use undercurrent_ebpf::abi::{
    processor::{self, COUNTERS, Counter, IDLE, INTERRUPTED, ProcessorCells, SHARED_CYCLES, busy},
    workload::Slot,
};

use super::switch;
use crate::kernel::{
    cells::{self, ByCpu, MMAPABLE},
    clock,
    constant::constants,
    fields::{TASK_CSS_SET, Task},
    owner::{or_node, slot_of_current},
    pointer::Ptr,
    shard::{Counters, SlotCounters},
};

switch!("processor");

/// Results of helpers above this value are negative error numbers.
const ERRORS: u64 = u64::MAX - 4095;

constants! {
    /// Bits of the counters that this processor has; see [`Counter::bit`].
    COUNTED = "processor.counters";
}

/// The state of each CPU.
#[map]
static PROCESSOR: ByCpu<ProcessorCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// Counters by slot, shard and word.
#[map]
static PROCESSOR_USE: Counters<{ processor::WORDS }> = Counters::with_max_entries(1, MMAPABLE);

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
    if enabled() && COUNTED.get() != 0 { cells::here(&PROCESSOR) } else { None }
}

/// Handles a switch from the current task to another one. Nothing is read between tasks in the same cgroups. The idle task is charged
/// nothing.
#[inline(always)]
pub fn switched(from: Ptr<Task>, to: Ptr<Task>, is_idle: bool) {
    if let Some(cells) = here() {
        // A set of cgroups exists as long as a task in it runs, so its address does not change its meaning meanwhile.
        let next = if is_idle { IDLE } else { to.follow(&TASK_CSS_SET).identity() };
        // The current task may have joined other cgroups since it was switched to, as a container's first process does.
        if next == cells.running && (is_idle || from.follow(&TASK_CSS_SET).identity() == next) {
            return;
        }
        let grown = read(cells, clock::monotonic, &Counter::ALL);
        if cells.running != IDLE {
            charge(&grown, &Counter::ALL);
        }
        // Only a CPU with a sibling has times.
        if cells.read != 0 {
            let used = busy::until(cells.published, cells.read);
            cells.published = busy::publish(used, cells.read, !is_idle);
        }
        cells.running = next;
    }
}

/// Handles the start of a network softirq: the interrupted task is charged its cycles until now.
#[inline(always)]
pub fn interrupted(is_idle: impl FnOnce() -> bool) {
    if let Some(cells) = here() {
        let grown = read(cells, clock::monotonic, &[Counter::Cycles]);
        cells.in_softirq = 1;
        if !is_idle() {
            charge(&grown, &[Counter::Cycles]);
        }
    }
}

/// Handles the end of a network softirq, which has its own cycles.
#[inline(always)]
pub fn resumed(now: u64) {
    if let Some(cells) = here() {
        let grown = read(cells, || now, &[Counter::Cycles]);
        // A softirq that began before the programs were attached counts for the interrupted task.
        if cells.in_softirq != 0 {
            cells.softirqs[0] += grown[Counter::Cycles as usize];
            cells.softirqs[1] += grown[SHARED_CYCLES];
        }
        cells.in_softirq = 0;
    }
}

/// Handles a tick of this CPU, so that a task that never switches is read too, and multiplexing and stopped events are noticed.
#[inline(always)]
pub fn ticked(is_idle: impl FnOnce() -> bool) {
    if let Some(cells) = here() {
        cells.ticks += 1;
        if cells.in_softirq == 0 {
            for counter in Counter::ALL {
                if COUNTED.get() & counter.bit() != 0 {
                    notice(cells, counter);
                }
            }
            let grown = read(cells, clock::monotonic, &Counter::ALL);
            if !is_idle() {
                charge(&grown, &Counter::ALL);
            }
        }
    }
}

/// Adds time in nanoseconds for which a network softirq interrupted the current task. The node's interrupted time is the rest.
#[inline(always)]
pub fn delay(nanoseconds: u64) {
    let slot = or_node(slot_of_current);
    if slot != Slot::NODE
        && let Some(counters) = SlotCounters::of(&PROCESSOR_USE, slot)
    {
        counters.add(INTERRUPTED, nanoseconds);
    }
}

/// Adds the growth of these counters to the current task's workload.
#[inline(always)]
fn charge(grown: &[u64; COUNTERS + 1], counters: &[Counter]) {
    let Some(totals) = SlotCounters::of(&PROCESSOR_USE, or_node(slot_of_current)) else { return };
    for counter in counters {
        if COUNTED.get() & counter.bit() != 0 {
            totals.add(*counter as usize, grown[*counter as usize]);
        }
    }
    if grown[SHARED_CYCLES] != 0 {
        totals.add(SHARED_CYCLES, grown[SHARED_CYCLES]);
    }
}

/// Returns the growth of these counters since their last reading, and of the cycles beside a busy sibling. The first reading has
/// none. Only a CPU with a sibling reads the clock.
#[inline(always)]
fn read(cells: &mut ProcessorCells, now: impl FnOnce() -> u64, counters: &[Counter]) -> [u64; COUNTERS + 1] {
    let mut grown = [0; COUNTERS + 1];
    for counter in counters {
        if COUNTED.get() & counter.bit() != 0 {
            grown[*counter as usize] = growth(cells, *counter);
        }
    }
    if let Some(sibling) = sibling() {
        let now = now();
        let length = now.saturating_sub(cells.read);
        cells.read = now;
        // SAFETY: an entry of the map, which lives as long as the program. The word is read at once.
        let used = busy::until(unsafe { (&raw const (*sibling).published).read_volatile() }, now);
        let overlap = used.saturating_sub(cells.sibling);
        cells.sibling = used;
        grown[SHARED_CYCLES] = processor::proportion(grown[Counter::Cycles as usize], overlap.min(length), length);
    }
    grown
}

/// Returns the map with the events of a counter.
#[inline(always)]
const fn events(counter: Counter) -> *const PerfEventArray<u64> {
    match counter {
        Counter::Cycles => &raw const CYCLES,
        Counter::Instructions => &raw const INSTRUCTIONS,
        Counter::CacheReferences => &raw const CACHE_REFERENCES,
        Counter::CacheMisses => &raw const CACHE_MISSES,
    }
}

/// Returns the growth of a counter, scaled if the kernel multiplexes it; zero for its first reading. `bpf_perf_event_read` does not
/// read the times of the event, which takes longer than the counter.
#[inline(always)]
fn growth(cells: &mut ProcessorCells, counter: Counter) -> u64 {
    // SAFETY: the map holds perf events.
    let value = unsafe { bpf_perf_event_read(events(counter).cast_mut().cast(), BPF_F_CURRENT_CPU.into()) };
    // The helper returns a negative error number, or the value.
    if value > ERRORS {
        cells.failed += 1;
        return 0;
    }
    let (growth, is_scaled) = cells.last[counter as usize].grow(value);
    cells.scaled += u64::from(is_scaled);
    growth
}

/// Stores the share of the time since the last tick for which the kernel counted an event.
#[inline(always)]
fn notice(cells: &mut ProcessorCells, counter: Counter) {
    let mut value = bpf_perf_event_value { counter: 0, enabled: 0, running: 0 };
    let size = size_of::<bpf_perf_event_value>() as u32;
    let map = events(counter).cast_mut().cast();
    // SAFETY: the map holds perf events, and the buffer has the given size.
    if unsafe { bpf_perf_event_read_value(map, BPF_F_CURRENT_CPU.into(), &raw mut value, size) } == 0 {
        let is_counted = cells.last[counter as usize].tick(value.enabled, value.running);
        cells.stopped += u64::from(!is_counted);
    }
}

/// Returns the state of this CPU's sibling; `None` without a sibling.
#[inline(always)]
fn sibling() -> Option<*const ProcessorCells> {
    // SAFETY: the helper has no arguments.
    let cpu = unsafe { aya_ebpf::helpers::bpf_get_smp_processor_id() };
    let sibling = SIBLINGS.get(cpu)?.checked_sub(1)?;
    // SAFETY: an entry of the map; only the address is computed.
    PROCESSOR.get_ptr(sibling).map(|entry| unsafe { &raw const (*entry).0 })
}
