//! Samples of every CPU at regular intervals.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::perf_event, programs::PerfEventContext};

use crate::signals::{network_functions, processor};

/// A perf event with a period, on one CPU. The program runs in the interrupt of the event's timer or counter.
#[perf_event]
fn sample(ctx: PerfEventContext) -> u32 {
    processor::ticked(|| bpf_get_current_pid_tgid() as u32 == 0);
    network_functions::sampled(&ctx);
    0
}
