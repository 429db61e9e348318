//! `undercurrent.network.cpu.time` of socket calls: the CPU time between entry and exit of a call.
//!
//! Each CPU has the call of its current task. A softirq pauses the call. A task that leaves its CPU takes its call to a table, and
//! back to the CPU on which it runs next. So no time is counted twice, and a call that waits costs nothing. The time of calls is
//! charged when the CPU switches to the idle task or to other cgroups, or after a millisecond.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::cost::{CostKind, LONGEST_PENDING, RunningCall, exact, waiting_calls};

use super::network_cpu::{self, charge};
use crate::kernel::{
    cells::{self, ByCpu, MMAPABLE},
    clock,
    fields::{TASK_COMM, TASK_CSS_SET, TASK_FLAGS, TASK_ID, Task},
    owner::{or_node, slot_of_current},
    pointer::Ptr,
};

/// The call of each CPU's current task.
#[map]
static CALLS: ByCpu<RunningCall> = ByCpu::with_max_entries(1, MMAPABLE);

/// Calls of tasks that do not run; see [`waiting_calls`].
#[map]
static WAITING_CALLS: Array<[u64; waiting_calls::TASKS]> = Array::with_max_entries(1, 0);

/// `PF_IO_WORKER` of `task_struct.flags`: a thread of io_uring (5.12 and later).
const IO_WORKER: u32 = 0x10;
/// Start of the name of a thread that polls a submission queue (`io_sq_offload_create`, 5.12 and later).
const SQPOLL: u64 = u64::from_le_bytes(*b"iou-sqp-");

/// Returns true if socket calls are measured; a constant to the verifier.
#[inline(always)]
pub fn measures() -> bool {
    network_cpu::measures() == exact::ALL
}

/// Returns the call of this CPU's current task if calls are measured.
#[inline(always)]
fn here() -> Option<&'static mut RunningCall> {
    if measures() { cells::here(&CALLS) } else { None }
}

/// Handles the entry of a call. A call within another one replaces it: the kernel calls these functions for its own sockets
/// too. The exit of the inner call ends both.
#[inline(always)]
pub fn entered(kind: CostKind) {
    let now = clock::monotonic();
    if let Some(call) = cells::here(&CALLS) {
        if call.kind != 0 {
            settle(call, now);
        }
        call.kind = kind as u64;
        call.since = now;
    }
}

/// Handles the exit of a call. Does nothing if no program saw its entry: the call began before the programs were attached, or its
/// socket is not of IPv4 or IPv6.
#[inline(always)]
pub fn exited() {
    if let Some(call) = cells::here(&CALLS)
        && call.kind != 0
    {
        settle(call, clock::monotonic());
        if call.pending[0] + call.pending[1] > LONGEST_PENDING {
            charge_pending(call);
        }
    }
}

/// Ends a running call, and keeps its time.
#[inline(always)]
fn settle(call: &mut RunningCall, now: u64) {
    interrupted(call, now);
    call.kind = 0;
}

/// Charges the time of the current task's calls to its workload.
#[inline(always)]
fn charge_pending(call: &mut RunningCall) {
    let slot = or_node(slot_of_current);
    // A word at a time: LLVM turns a store of both into a slow call of `memset`.
    let [receive, send] = call.pending.each_mut().map(core::mem::take);
    charge(slot, [(CostKind::SocketReceive, receive), (CostKind::SocketSend, send)]);
}

/// Returns the running call of this CPU's current task.
#[inline(always)]
pub fn running() -> Option<&'static mut RunningCall> {
    here().filter(|call| call.kind != 0)
}

/// Handles the entry of any softirq during a call. A softirq after the hook read its clock may have set a later `since`.
#[inline(always)]
pub fn interrupted(call: &mut RunningCall, now: u64) {
    if now > call.since {
        let is_send = call.kind == CostKind::SocketSend as u64;
        call.pending[usize::from(is_send)] += now - call.since;
    }
}

/// Handles the exit of any softirq during a call.
#[inline(always)]
pub fn resumed(call: &mut RunningCall, now: u64) {
    call.since = now;
}

/// Handles a switch from the current task to another one.
#[inline(always)]
pub fn switched(from: Ptr<Task>, to: Ptr<Task>) {
    let Some(call) = here() else { return };
    let (leaves, next) = (call.kind, to.read(&TASK_ID));
    let resumes = take(next);
    let (was_worker, is_worker) = (call.io_uring != 0, to.read(&TASK_FLAGS) & IO_WORKER != 0);
    if leaves != 0 || resumes != 0 || was_worker || is_worker {
        let now = clock::monotonic();
        if was_worker {
            let polls = from.read(&TASK_COMM)[0] == SQPOLL;
            let kind = if polls { CostKind::IoUringSqpoll } else { CostKind::IoUringWorker };
            charge(or_node(slot_of_current), [(kind, now.wrapping_sub(call.io_uring))]);
        }
        if leaves != 0 {
            settle(call, now);
            put(call, from.read(&TASK_ID), leaves);
        }
        call.kind = resumes;
        call.since = now;
        call.io_uring = if is_worker { now } else { 0 };
    }
    if call.pending[0] + call.pending[1] != 0 && (next == 0 || are_apart(from, to)) {
        charge_pending(call);
    }
}

/// Returns true if two tasks are in different sets of cgroups.
#[inline(always)]
fn are_apart(one: Ptr<Task>, other: Ptr<Task>) -> bool {
    one.follow(&TASK_CSS_SET).identity() != other.follow(&TASK_CSS_SET).identity()
}

/// Returns the entry of the table for a task.
#[inline(always)]
fn entry(task: u32) -> Option<*mut [u64; waiting_calls::TASKS]> {
    WAITING_CALLS.get_ptr_mut(waiting_calls::index(task))
}

/// Keeps the call of a task that leaves its CPU.
#[inline(always)]
fn put(call: &mut RunningCall, task: u32, kind: u64) {
    let Some(entry) = entry(task) else { return };
    let first = entry.cast::<u64>();
    // SAFETY: the second word of an entry of the map, which lives as long as the program.
    let second = unsafe { first.add(1) };
    // SAFETY: words of the entry. Each access is one word, and another CPU may replace it.
    let word = unsafe {
        match (first.read_volatile(), second.read_volatile()) {
            (0, _) => first,
            (_, 0) => second,
            _ => {
                call.replaced += 1;
                first
            }
        }
    };
    // SAFETY: a word of the entry.
    unsafe { word.write_volatile(waiting_calls::word(task, kind)) };
}

/// Takes the call of a task that gets a CPU; zero if it is in none.
#[inline(always)]
fn take(task: u32) -> u64 {
    let Some(entry) = entry(task) else { return 0 };
    for index in 0..waiting_calls::TASKS {
        // SAFETY: a word of an entry of the map, which lives as long as the program.
        let word = unsafe { entry.cast::<u64>().add(index) };
        // SAFETY: as `put` does, one access to the word.
        if let Some(kind) = waiting_calls::kind(unsafe { word.read_volatile() }, task) {
            // SAFETY: a word of the entry.
            unsafe { word.write_volatile(0) };
            return kind;
        }
    }
    0
}
