//! The network softirqs: raise, entry and exit. The tracepoints fire in interrupt context and in ksoftirqd.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::btf_tracepoint, programs::BtfTracePointContext};
use undercurrent_ebpf::abi::softirq::{Softirq, SoftirqCells};

use crate::{
    kernel::{cells, clock},
    signals::{
        network_cpu::{self, SOFTIRQ},
        processor, socket_calls, softirq_wait, workload_cpu,
    },
};

/// Returns the softirq and the cells of the current CPU; `None` for softirqs other than the network's.
#[inline(always)]
fn event(ctx: &BtfTracePointContext) -> Option<(Softirq, &'static mut SoftirqCells)> {
    let softirq = Softirq::from_vector(ctx.arg(0))?;
    Some((softirq, cells::here(&SOFTIRQ)?))
}

/// Returns true if the softirq interrupted the idle task.
#[inline(always)]
fn is_idle() -> bool {
    bpf_get_current_pid_tgid() as u32 == 0
}

/// Tracepoint `softirq_raise(unsigned int vec_nr)`, with interrupts disabled.
#[btf_tracepoint(function = "softirq_raise")]
fn softirq_raise(ctx: BtfTracePointContext) -> i32 {
    if let Some((softirq, cells)) = event(&ctx) {
        softirq_wait::raised(&mut cells.state[softirq as usize], clock::monotonic);
    }
    0
}

/// Tracepoint `softirq_entry(unsigned int vec_nr)`. The clock is read late, since the time from there on is that of the softirq.
#[btf_tracepoint(function = "softirq_entry")]
fn softirq_entry(ctx: BtfTracePointContext) -> i32 {
    let (call, event) = (socket_calls::running(), event(&ctx));
    if call.is_none() && event.is_none() {
        return 0;
    }
    if event.is_some() {
        processor::interrupted(is_idle);
    }
    let now = clock::monotonic();
    if let Some(call) = call {
        socket_calls::interrupted(call, now);
    }
    if let Some((softirq, cells)) = event {
        network_cpu::entered(cells, softirq, now);
        softirq_wait::entered(cells, softirq, now);
    }
    0
}

/// Tracepoint `softirq_exit(unsigned int vec_nr)`. The clock is read early.
#[btf_tracepoint(function = "softirq_exit")]
fn softirq_exit(ctx: BtfTracePointContext) -> i32 {
    let softirq = Softirq::from_vector(ctx.arg(0));
    if softirq.is_none() && !socket_calls::measures() {
        return 0;
    }
    let now = clock::monotonic();
    if let (Some(softirq), Some(cells)) = (softirq, cells::here(&SOFTIRQ)) {
        let began = cells.state[softirq as usize].running;
        network_cpu::exited(cells, softirq, now);
        softirq_wait::exited(cells, softirq);
        if began != 0 {
            workload_cpu::interrupted(now.wrapping_sub(began), is_idle);
        }
        processor::resumed(now);
    }
    if let Some(call) = socket_calls::running() {
        socket_calls::resumed(call, now);
    }
    0
}
