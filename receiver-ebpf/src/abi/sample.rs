//! Samples of the CPUs: the record of a stack, and the counts of each CPU.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::workload::Slot;

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
    /// The slot that received the last packet on the CPU; see [`receiver`].
    pub receiver: u16,
    /// The slot of the task that ran, or that a softirq interrupted; the node's slot for the idle task.
    pub task: u16,
}

/// Longest time since a measured packet, in nanoseconds, for which a sample of the receive softirq counts for the packet's receiver.
const RECEIVING: u64 = 4_000_000;
/// Bits of a slot below the time of a packet.
const SLOT: u64 = u16::MAX as u64;

/// Returns the word of a CPU after a packet for a slot at a time, nanoseconds of the monotonic clock.
#[must_use]
#[inline(always)]
pub const fn received(slot: Slot, now: u64) -> u64 {
    now & !SLOT | slot.0 as u64
}

/// Returns the slot that a CPU works for at a time, if it runs the receive softirq: the last receiver, or the node if the last packet is
/// old.
#[must_use]
#[inline(always)]
pub const fn receiver(word: u64, now: u64) -> Slot {
    // A word of zero is old: the clock counts from the boot.
    if now.wrapping_sub(word & !SLOT) < RECEIVING { Slot((word & SLOT) as u16) } else { Slot::NODE }
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
    assert!(receiver(received(Slot(7), 10_000_000_001), 10_003_900_000).0 == 7);
    assert!(receiver(received(Slot(7), 10_000_000_001), 10_004_000_001).0 == Slot::NODE.0);
    assert!(receiver(0, 10_000_000_001).0 == Slot::NODE.0);
};
