//! CPU time of network events by workload: words, by slot, then by shard, then by [`CostKind`].

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Work whose CPU time is charged to a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CostKind {
    /// `NET_RX_SOFTIRQ`.
    ReceiveSoftirq,
    /// A task receives from a socket.
    SocketReceive,
    /// A task sends to a socket.
    SocketSend,
    /// A worker thread of io_uring.
    IoUringWorker,
    /// A thread of io_uring that polls its submission queue.
    IoUringSqpoll,
}

impl CostKind {
    /// Every kind, each at its own index.
    pub const ALL: [Self; 5] =
        [Self::ReceiveSoftirq, Self::SocketReceive, Self::SocketSend, Self::IoUringWorker, Self::IoUringSqpoll];
}

/// Words of a shard: one cache line, which CPUs with their own shard do not share.
pub const WORDS: usize = 8;

/// What is measured exactly: values of the global `network_cpu.exact`.
pub mod exact {
    /// Nothing.
    pub const NONE: u32 = 0;
    /// Network softirqs.
    pub const SOFTIRQS: u32 = 1;
    /// Network softirqs, socket calls and threads of io_uring.
    pub const ALL: u32 = 2;
}

/// The socket calls of the task that runs on one CPU. Times are nanoseconds of the monotonic clock.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RunningCall {
    /// The index of its [`CostKind`]; zero if the task is in no socket call.
    pub kind: u64,
    /// Time since which the CPU works for the call.
    pub since: u64,
    /// CPU time of calls that is not charged yet, by [`CostKind`] from [`CostKind::SocketReceive`] on. The calls are of tasks in the
    /// current task's cgroups.
    pub pending: [u64; 2],
    /// Time since which the CPU runs a thread of io_uring; zero if the task is none.
    pub io_uring: u64,
    /// Calls of waiting tasks that were replaced in the table.
    pub replaced: u64,
}

/// The longest time of calls that is not charged at the end of a call, in nanoseconds: a charge takes longer than a short call.
pub const LONGEST_PENDING: u64 = 1_000_000;

/// The table of tasks that wait or were preempted within a socket call. An entry has [`TASKS`](waiting_calls::TASKS) words. A word has
/// the task's id above the index of the call's [`CostKind`], or is zero.
pub mod waiting_calls {
    /// Tasks of an entry.
    pub const TASKS: usize = 2;
    /// Entries of the table, a power of two.
    pub const ENTRIES: usize = 8192;
    const KIND_BITS: u32 = 8;

    /// Returns the index of a task's entry. The kernel numbers tasks consecutively.
    #[must_use]
    #[inline(always)]
    pub const fn index(task: u32) -> u32 {
        task & (ENTRIES as u32 - 1)
    }

    /// Returns the word of a task.
    #[must_use]
    #[inline(always)]
    pub const fn word(task: u32, kind: u64) -> u64 {
        (task as u64) << KIND_BITS | kind
    }

    /// Returns the index of the call's kind; `None` if the word is another task's.
    #[must_use]
    #[inline(always)]
    pub const fn kind(word: u64, task: u32) -> Option<u64> {
        if word != 0 && word >> KIND_BITS == task as u64 { Some(word & ((1 << KIND_BITS) - 1)) } else { None }
    }
}

const _: () = {
    assert!(CostKind::ALL.len() <= WORDS && WORDS.is_power_of_two());
    assert!(size_of::<RunningCall>() == 48);
};
