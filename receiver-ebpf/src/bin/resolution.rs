//! Programs that record any duration with the product's code for cells. Tests run them without attaching them.
#![no_std]
#![feature(asm_experimental_arch)]
#![no_main]

#[path = "../kernel/cells.rs"]
mod cells;
#[path = "../kernel/object.rs"]
mod object;
#[expect(dead_code, reason = "this object has no hooks")]
#[path = "../kernel/workarounds.rs"]
mod workarounds;

use aya_ebpf::{
    macros::{map, raw_tracepoint},
    programs::RawTracePointContext,
};
use undercurrent_ebpf::abi::histogram::HistogramCell;

use self::cells::{Beyond, ByCpu, MMAPABLE};

/// The byte offset of the last duration's bucket, or the duration if it is beyond all buckets, which is larger than any offset.
#[map]
static BUCKET: ByCpu<u64> = ByCpu::with_max_entries(1, MMAPABLE);

/// Durations within the buckets.
#[map]
static RECORDED: ByCpu<HistogramCell> = ByCpu::with_max_entries(1, MMAPABLE);

/// Durations of any length.
#[map]
static RECORDED_ANY: ByCpu<HistogramCell> = ByCpu::with_max_entries(1, MMAPABLE);

#[raw_tracepoint]
fn bucket(ctx: RawTracePointContext) -> u32 {
    if let Some(bucket) = cells::here(&BUCKET) {
        *bucket = cells::bucket(ctx.arg(0)).map_or_else(|Beyond(nanoseconds)| nanoseconds, |offset| offset as u64);
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
