//! The switch of `slow_packets`, and the state that the layers before the read keep for it.

use aya_ebpf::macros::map;
use undercurrent_ebpf::abi::slow::SlowCells;

use super::switch;
use crate::kernel::cells::{ByCpu, MMAPABLE};

switch!("slow_packets");

/// The scratch buffers and counts by CPU.
#[map]
pub static SLOW: ByCpu<SlowCells> = ByCpu::with_max_entries(1, MMAPABLE);
