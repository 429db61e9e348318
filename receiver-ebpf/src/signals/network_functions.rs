//! `undercurrent.network.function.cpu.time`: stacks of samples that can be network work.
//!
//! A stack takes microseconds, all checks before it together less than a tenth of that.
//!
//! The interrupt of a cycle counter is non-maskable, so each helper must be safe in such an interrupt. In Linux 5.10 to 7.x:
//! - `bpf_ktime_get_ns` reads `ktime_get_mono_fast_ns`, which takes no lock.
//! - `bpf_get_stack` uses a buffer for each context (task, softirq, interrupt, non-maskable interrupt), and the unwinder takes no lock.
//! - `bpf_get_current_cgroup_id` and `bpf_get_current_pid_tgid` only read the current task.
//! - `bpf_probe_read_kernel` disables page faults. `bpf_get_current_task`, `bpf_get_current_task_btf` and `bpf_task_pt_regs` only
//!   compute addresses.
//! - `bpf_ringbuf_output` does not wait for the lock of the ring: it only tries to take the lock, or takes a resilient spin lock in newer
//!   kernels. A failure counts as a full ring. The wake-up of the reader is an `irq_work`.
//! - The kernel runs no program of a perf event while another program of a perf event or kprobe runs on the CPU, or while the CPU changes
//!   a hash map for user space (`bpf_prog_active`). The next sample counts the missing samples of a timer.

use aya_ebpf::{
    EbpfContext as _,
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, bpf_perf_event_data},
    helpers::{
        bpf_get_current_pid_tgid, bpf_get_smp_processor_id,
        generated::{
            bpf_get_current_task, bpf_get_current_task_btf, bpf_get_stack, bpf_ringbuf_output, bpf_task_pt_regs,
        },
    },
    macros::map,
    maps::{PerCpuArray, RingBuf},
    programs::PerfEventContext,
};
use undercurrent_ebpf::abi::{
    sample::{self, CALLS, FRAMES, LATEST, Sample, SampleCells, SampleHeader},
    workload::{Slot, ownership},
};

use super::switch;
use crate::kernel::{
    cells::{self, ByCpu, MMAPABLE},
    clock,
    constant::constants,
    field::read_at,
    fields::{
        EVENT_DUE, PerfEvent, PtRegs, REGS_CALL_ARM64, REGS_CALL_X86, REGS_SP, TASK_FLAGS, TASK_ID, TASK_STACK,
        TASK_STATUS, Task,
    },
    owner,
    pointer::{Probed, Ptr},
};

switch!("network_functions");

/// Stacks, in records of a [`SampleHeader`] and up to [`FRAMES`] addresses.
#[map]
static SAMPLES: RingBuf = RingBuf::with_byte_size(64 * 1024, 0);

/// The counts of each CPU.
#[map]
static SAMPLE_CELLS: ByCpu<SampleCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// The last receiver on each CPU, by [`sample::received`].
#[map]
static RECEIVERS: ByCpu<u64> = ByCpu::with_max_entries(1, MMAPABLE);

/// A scratch buffer: a stack is larger than the stack of a program.
#[map]
static SAMPLE_SCRATCH: PerCpuArray<Sample> = PerCpuArray::with_max_entries(1, 0);

/// 1 for each system call that can do network work, by its number. The loader sets the table.
#[unsafe(export_name = "sample.calls")]
#[unsafe(link_section = ".rodata.sample")]
static CALL: [u8; CALLS] = [0; CALLS];

constants! {
    /// Fill level of the ring in bytes above which a sample wakes the reader.
    HIGH_WATER = "sample.high_water";
    /// 1 if programs can read the user registers of a task (`bpf_task_pt_regs`, 5.15 and later).
    REGISTERS = "sample.registers";
}

/// `PF_KTHREAD` and `PF_IO_WORKER` of `include/linux/sched.h` (5.10 to 7.3): tasks without a system call.
const PF_KERNEL: u32 = 0x0020_0000 | 0x10;

/// `TS_COMPAT` of `arch/x86/include/asm/thread_info.h` (5.10 to 7.3): the task makes a system call of 32-bit programs, which have other
/// numbers.
const TS_COMPAT: u32 = 2;

/// `THREAD_SIZE` of x86-64, and of arm64 with pages of 4 KiB. Where it is larger, some samples of task context count as
/// samples of interrupts, which costs unneeded stacks.
const THREAD_SIZE: u64 = 16 * 1024;

/// The origin of a sample.
enum Origin {
    /// User mode.
    User,
    /// The idle loop.
    Idle,
    /// Kernel mode, without network work.
    Other,
    /// Kernel mode, where network work is possible.
    Network,
}

/// Records that a slot receives a measured packet. Samples of the receive softirq count for the slot until the next one. A sample reads
/// the word as a whole.
#[inline(always)]
pub fn received(slot: Slot, now: u64) {
    if charges()
        && let Some(word) = cells::here(&RECEIVERS)
    {
        *word = sample::received(slot, now);
    }
}

/// Returns true if samples count for workloads.
#[inline(always)]
pub fn charges() -> bool {
    enabled() && owner::by() != ownership::OFF
}

/// Returns the slots of a sample: the receiver of the last packet, and the task's.
#[inline(always)]
fn slots(now: u64) -> [Slot; 2] {
    if !charges() {
        return [Slot::NODE; 2];
    }
    let receiver = cells::here(&RECEIVERS).map_or(Slot::NODE, |word| sample::receiver(*word, now));
    let is_idle = bpf_get_current_pid_tgid() as u32 == 0;
    [receiver, if is_idle { Slot::NODE } else { owner::slot_of_current_or_node() }]
}

/// Handles a sample by a timer. It represents its period, and the later periods that the kernel skips because the timer is late, for example
/// after a hypervisor has stopped the CPU (`hrtimer_forward_now` in `perf_swevent_hrtimer`, 5.10 to 7.3).
///
/// The time since the previous sample would be wrong: the kernel can drop samples, and those of the idle loop are not work of the next one.
#[inline(always)]
pub fn timed(ctx: &PerfEventContext) {
    sampled(ctx, |cells, now| {
        let period = period(ctx);
        let Some(due) = event(ctx).get(&EVENT_DUE) else { return period };
        let periods = |time: u64| if time > LATEST { 0 } else { time.checked_div(period).unwrap_or(0) };
        if cells.due != 0 {
            cells.dropped += periods(due.saturating_sub(cells.due));
        }
        let weight = period * (1 + periods(now.saturating_sub(due)));
        cells.due = due + weight;
        weight
    });
}

/// Handles a sample by a counter. It represents the counted events of its period.
#[inline(always)]
pub fn counted(ctx: &PerfEventContext) {
    sampled(ctx, |_, _| period(ctx));
}

/// Handles a sample. `weight` returns its weight by the counts of the CPU and the current time.
#[inline(always)]
fn sampled(ctx: &PerfEventContext, weight: impl FnOnce(&mut SampleCells, u64) -> u64) {
    if !enabled() {
        return;
    }
    let Some(cells) = cells::here(&SAMPLE_CELLS) else { return };
    let now = clock::monotonic();
    let weight = weight(cells, now);
    cells.samples += 1;
    match origin(ctx) {
        Origin::Idle => {
            cells.idle += 1;
            return;
        }
        Origin::Network => {
            stack(ctx, cells, weight, now);
            cells.time += clock::monotonic() - now;
        }
        Origin::User | Origin::Other => {}
    }
    cells.busy += weight;
}

/// Returns the origin of a sample from registers of the interrupted code.
#[inline(always)]
fn origin(ctx: &PerfEventContext) -> Origin {
    // The context in memory is a `bpf_perf_event_data_kern`, and `regs` is its first member (5.10 to 7.3). The program cannot load
    // registers from the context at offsets that the loader sets.
    let regs = Ptr::<PtRegs, Probed>::at(read_at(ctx.as_ptr() as u64).unwrap_or(0));
    let pointer = regs.read(&REGS_SP);
    // Addresses of the kernel have the highest bit.
    if pointer >> 63 == 0 {
        return Origin::User;
    }
    // SAFETY: the helper has no arguments.
    let task = Ptr::<Task, Probed>::at(unsafe { bpf_get_current_task() });
    // Softirqs after an interrupt, and those that a task raises on x86-64, run on the stack for interrupts.
    if pointer.wrapping_sub(task.read(&TASK_STACK)) >= THREAD_SIZE {
        return Origin::Network;
    }
    if task.read(&TASK_ID) == 0 {
        return Origin::Idle;
    }
    if task.read(&TASK_FLAGS) & PF_KERNEL != 0 || calls_network() {
        return Origin::Network;
    }
    Origin::Other
}

/// Returns true if the system call of the current task can do network work, or is unknown: one of a 32-bit program, for example.
#[inline(always)]
fn calls_network() -> bool {
    if REGISTERS.get() == 0 {
        return true;
    }
    // SAFETY: the helper returns a typed `task_struct`.
    let task = unsafe { Ptr::<Task>::typed(bpf_get_current_task_btf() as *const Task) };
    if task.get(&TASK_STATUS).is_some_and(|status| status & TS_COMPAT != 0) {
        return true;
    }
    // SAFETY: the helpers return a typed `task_struct` and its typed `pt_regs`.
    let regs = unsafe { Ptr::<PtRegs>::typed(bpf_task_pt_regs(bpf_get_current_task_btf()) as *const PtRegs) };
    let x86 = regs.get(&REGS_CALL_X86);
    let call = x86.or_else(|| regs.get(&REGS_CALL_ARM64).map(|call| call as u64));
    let Some(call) = call else { return true };
    // -1 after an exception or interrupt in user mode.
    if call >= CALLS as u64 {
        return false;
    }
    // SAFETY: the index is below the length of the table. Volatile, since the loader sets the table.
    unsafe { (&raw const CALL).cast::<u8>().add(call as usize).read_volatile() != 0 }
}

/// Returns the event of the sample.
#[inline(always)]
fn event(ctx: &PerfEventContext) -> Ptr<PerfEvent, Probed> {
    // `event` is the third member of `bpf_perf_event_data_kern` (5.10 to 7.3).
    Ptr::at(read_at(ctx.as_ptr() as u64 + 2 * size_of::<u64>() as u64).unwrap_or(0))
}

/// Returns the period of the event: nanoseconds of a timer, or counted events.
#[inline(always)]
fn period(ctx: &PerfEventContext) -> u64 {
    // SAFETY: the context of the running program; the verifier rewrites the load.
    unsafe { (*ctx.as_ptr().cast::<bpf_perf_event_data>()).sample_period }
}

/// Writes the stack of a sample that represents `weight` to the ring. `now` is the time of the sample.
#[inline(always)]
fn stack(ctx: &PerfEventContext, cells: &mut SampleCells, weight: u64, now: u64) {
    let [receiver, task] = slots(now);
    let Some(sample) = SAMPLE_SCRATCH.get_ptr_mut(0) else { return };
    const BYTES: u64 = (FRAMES * size_of::<u64>()) as u64;
    // SAFETY: the scratch buffer of this CPU. Only this program uses it, and the program does not interrupt its own run. The
    // helper writes at most `BYTES`.
    let length = unsafe {
        (*sample).header = SampleHeader { weight, cpu: bpf_get_smp_processor_id(), receiver: receiver.0, task: task.0 };
        bpf_get_stack(ctx.as_ptr(), (&raw mut (*sample).frames).cast(), BYTES as u32, 0)
    };
    let length = length as u64;
    if length == 0 || length > BYTES {
        cells.unreadable += 1;
        return;
    }
    let bytes = length + size_of::<SampleHeader>() as u64;
    let wakes = SAMPLES.query(BPF_RB_AVAIL_DATA.into()) >= HIGH_WATER.get().into();
    let flags = if wakes { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP };
    // SAFETY: the scratch buffer has at least `bytes` bytes.
    let written =
        unsafe { bpf_ringbuf_output((&raw const SAMPLES).cast_mut().cast(), sample.cast(), bytes, flags.into()) };
    if written != 0 {
        cells.full += 1;
    }
}
