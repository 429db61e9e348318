//! Samples of every CPU, and ticks.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::perf_event, programs::PerfEventContext};

use crate::signals::{network_functions, processor};

/// A timer on one CPU. The program runs in the timer's interrupt.
#[perf_event]
fn sample(ctx: PerfEventContext) -> u32 {
    network_functions::timed(&ctx);
    0
}

/// The cycle counter of one CPU. The program runs in the counter's interrupt: a non-maskable one on x86-64, and on arm64 with
/// `irqchip.gicv3_pseudo_nmi=1`. It can interrupt every other program, and only
/// reads their memory: one word.
#[perf_event]
fn sample_cycles(ctx: PerfEventContext) -> u32 {
    network_functions::counted(&ctx);
    0
}

/// A timer on one CPU, for counters. The program runs in the timer's interrupt.
#[perf_event]
fn tick(_: PerfEventContext) -> u32 {
    processor::ticked(|| bpf_get_current_pid_tgid() as u32 == 0);
    0
}
