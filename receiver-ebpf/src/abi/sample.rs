//! Samples of the CPUs: the record of a stack, and the counts of each CPU.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Most frames of a stack: the default of `kernel.perf_event_max_stack`. The kernel leaves out the outermost frames of longer
/// stacks.
pub const FRAMES: usize = 127;

/// The beginning of a record in the ring. The frames follow as addresses, the innermost first.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SampleHeader {
    /// The weight of the sample: nanoseconds by a timer, or cycles by a counter.
    pub weight: u64,
    /// The CPU.
    pub cpu: u32,
    /// Unused.
    pub padding: u32,
}

/// A record of the largest size.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sample {
    /// The beginning.
    pub header: SampleHeader,
    /// Addresses, the innermost frame first.
    pub frames: [u64; FRAMES],
}

/// Counts of one CPU since the program was attached.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SampleCells {
    /// Samples, including all others below.
    pub samples: u64,
    /// Samples of the idle loop.
    pub idle: u64,
    /// Samples by a timer that the kernel did not take.
    pub dropped: u64,
    /// Samples without a stack because the ring was full.
    pub full: u64,
    /// Samples without a stack because the kernel could not read it.
    pub unreadable: u64,
    /// Nanoseconds spent on samples with a stack.
    pub time: u64,
    /// The sum of the weights of all samples outside of the idle loop.
    pub busy: u64,
    /// Next expiry of the timer, nanoseconds of the monotonic clock; zero before the first sample.
    pub due: u64,
}

/// Longest delay of a timer that counts, in nanoseconds. If it is longer, the machine was paused, the CPU was offline, or its event was
/// replaced.
pub const LATEST: u64 = 1_000_000_000;

/// Bytes of the table of system calls.
pub const CALLS: usize = 512;

const _: () = {
    assert!(size_of::<SampleHeader>() == 16);
    assert!(size_of::<Sample>() == 16 + 8 * FRAMES);
    assert!(size_of::<SampleCells>() == 64);
};
