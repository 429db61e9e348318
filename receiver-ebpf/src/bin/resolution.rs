//! Programs that hand a duration to the product's own recording into cells, for tests that run them on durations of their
//! choice. They are attached to nothing.
#![no_std]
#![no_main]

#[path = "../kernel/cells.rs"]
mod cells;
#[path = "../kernel/object.rs"]
mod object;

use aya_ebpf::{
    macros::{map, raw_tracepoint},
    programs::RawTracePointContext,
};
use undercurrent_ebpf::abi::histogram::HistogramCell;

use self::cells::{Beyond, ByCpu, MMAPABLE};

/// The last duration's slot as a byte offset, or the duration where it is beyond, which no offset is as large as.
#[map]
static SLOT: ByCpu<u64> = ByCpu::with_max_entries(1, MMAPABLE);

/// Durations that a bucket covers.
#[map]
static RECORDED: ByCpu<HistogramCell> = ByCpu::with_max_entries(1, MMAPABLE);

/// Durations of any length.
#[map]
static RECORDED_ANY: ByCpu<HistogramCell> = ByCpu::with_max_entries(1, MMAPABLE);

#[raw_tracepoint]
fn slot(ctx: RawTracePointContext) -> u32 {
    if let Some(slot) = cells::here(&SLOT) {
        *slot = cells::slot(ctx.arg(0)).map_or_else(|Beyond(nanoseconds)| nanoseconds, |offset| offset as u64);
    }
    0
}

#[raw_tracepoint]
fn record(ctx: RawTracePointContext) -> u32 {
    if let Some(cell) = cells::here(&RECORDED) {
        let _ = cells::record(cell, ctx.arg(0), 1);
    }
    0
}

#[raw_tracepoint]
fn record_any(ctx: RawTracePointContext) -> u32 {
    if let Some(cell) = cells::here(&RECORDED_ANY) {
        cells::record_any(cell, ctx.arg(0), 1);
    }
    0
}
