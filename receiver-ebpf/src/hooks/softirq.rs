//! The network softirqs: raised, entered, left. The tracepoints fire alike in interrupt context and in ksoftirqd.

use aya_ebpf::{
    macros::{btf_tracepoint, map},
    maps::PerCpuArray,
    programs::BtfTracePointContext,
};
use undercurrent_ebpf::abi::softirq::{Softirq, SoftirqCell};

use crate::{
    kernel::clock,
    signals::{network_cpu, softirq_wait},
};

#[map]
static SOFTIRQ: PerCpuArray<SoftirqCell> = PerCpuArray::with_max_entries(2, 0);

/// The softirq and its cell on this CPU; `None` for the softirqs that are not the network's.
#[inline(always)]
fn cell<'a>(ctx: &BtfTracePointContext) -> Option<(Softirq, &'a mut SoftirqCell)> {
    let softirq = Softirq::from_vector(ctx.arg(0))?;
    let cell = SOFTIRQ.get_ptr_mut(softirq as u32)?;
    // SAFETY: this CPU's value; `SoftirqCell` says who writes which word.
    Some((softirq, unsafe { &mut *cell }))
}

/// Tracepoint `softirq_raise(unsigned int vec_nr)`, interrupts off.
#[btf_tracepoint(function = "softirq_raise")]
fn softirq_raise(ctx: BtfTracePointContext) -> i32 {
    if let Some((_, cell)) = cell(&ctx) {
        softirq_wait::raised(cell, clock::monotonic);
    }
    0
}

/// Tracepoint `softirq_entry(unsigned int vec_nr)`.
#[btf_tracepoint(function = "softirq_entry")]
fn softirq_entry(ctx: BtfTracePointContext) -> i32 {
    if let Some((softirq, cell)) = cell(&ctx) {
        let now = clock::monotonic();
        network_cpu::entered(cell, now);
        softirq_wait::entered(softirq, cell, now);
    }
    0
}

/// Tracepoint `softirq_exit(unsigned int vec_nr)`.
#[btf_tracepoint(function = "softirq_exit")]
fn softirq_exit(ctx: BtfTracePointContext) -> i32 {
    if let Some((_, cell)) = cell(&ctx) {
        network_cpu::exited(cell, clock::monotonic());
    }
    0
}
