//! Types that cross the kernel boundary: fixed-width, `#[repr(C)]`, with asserted layouts, read through checked casts.

pub mod by_cpu;
pub mod cast;
pub mod constant;
pub mod cost;
pub mod driver;
pub mod drops;
pub mod extra;
pub mod filter;
pub mod group;
pub mod head_of_line;
pub mod histogram;
pub mod http1;
pub mod interface;
pub mod latency;
pub mod loss;
pub mod peers;
pub mod processor;
pub mod retransmits;
pub mod sample;
pub mod segments;
pub mod series;
pub mod served;
pub mod slow;
pub mod softirq;
pub mod transactions;
pub mod transmit;
pub mod waiting;
pub mod workload;

/// Value of a field offset or flag that the running kernel lacks. It fits the signed 32-bit operand of a comparison.
pub const ABSENT: u32 = i32::MAX.cast_unsigned();
