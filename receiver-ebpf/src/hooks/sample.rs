//! Samples of every CPU at regular intervals.

use aya_ebpf::{macros::perf_event, programs::PerfEventContext};

use crate::signals::network_functions;

/// A perf event with a period, on one CPU. The program runs in the interrupt of the event's timer or counter.
#[perf_event]
fn sample(ctx: PerfEventContext) -> u32 {
    network_functions::sampled(&ctx);
    0
}
