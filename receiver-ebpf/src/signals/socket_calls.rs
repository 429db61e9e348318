//! `undercurrent.network.cpu.time` of socket calls: the CPU time between entry and exit of a call.
//!
//! Each CPU has the call of its current task. A softirq pauses the call. A task that leaves its CPU takes its call to a table, and
//! back to the CPU on which it runs next. So no time is counted twice, and a call that waits costs nothing. The time of a task's
//! calls is charged when the task leaves its CPU, or after a millisecond.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    cost::{CostKind, LONGEST_PENDING, RunningCall, exact, waiting_calls},
    workload::indices,
};

use super::network_cpu::{self, charge};
use crate::kernel::{
    cells::{self, ByCpu, MMAPABLE},
    clock,
    fields::{TASK_COMM, TASK_FLAGS, TASK_ID, Task},
    owner::{or_node, slot_of_current},
    pointer::Ptr,
};

/// The call of each CPU's current task.
#[map]
static CALLS: ByCpu<RunningCall> = ByCpu::with_max_entries(1, MMAPABLE);

/// Calls of tasks that do not run; see [`waiting_calls`].
#[map]
static WAITING_CALLS: Array<u64> = Array::with_max_entries(1, 0);

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
    if let Some(call) = here() {
        settle(call, now);
        call.kind = kind as u64;
        call.since = now;
    }
}

/// Handles the exit of a call. A call that began before the programs were attached is not counted.
#[inline(always)]
pub fn exited() {
    let now = clock::monotonic();
    if let Some(call) = here() {
        settle(call, now);
        if call.pending[0] + call.pending[1] > LONGEST_PENDING {
            charge_pending(call);
        }
    }
}

/// Ends a running call, and keeps its time. A softirq after the hook read its clock may have set a later `since`.
#[inline(always)]
fn settle(call: &mut RunningCall, now: u64) {
    let time = call.time + now.saturating_sub(call.since);
    match CostKind::socket_call(call.kind) {
        Some(CostKind::SocketReceive) => call.pending[0] += time,
        Some(_) => call.pending[1] += time,
        None => return,
    }
    call.kind = 0;
    call.time = 0;
}

/// Charges the time of the current task's calls to its workload.
#[inline(always)]
fn charge_pending(call: &mut RunningCall) {
    let slot = or_node(slot_of_current);
    for (kind, pending) in [CostKind::SocketReceive, CostKind::SocketSend].into_iter().zip(&mut call.pending) {
        charge(slot, kind, core::mem::take(pending));
    }
}

/// Returns the running call of this CPU's current task.
#[inline(always)]
pub fn running() -> Option<&'static mut RunningCall> {
    here().filter(|call| call.kind != 0)
}

/// Handles the entry of any softirq during a call.
#[inline(always)]
pub fn interrupted(call: &mut RunningCall, now: u64) {
    call.time += now.wrapping_sub(call.since);
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
    let leaves = call.kind;
    let resumes = take(to.read(&TASK_ID));
    let (was_worker, is_worker) = (call.io_uring != 0, to.read(&TASK_FLAGS) & IO_WORKER != 0);
    if leaves == 0 && call.pending[0] + call.pending[1] != 0 {
        charge_pending(call);
    }
    if leaves == 0 && resumes == 0 && !was_worker && !is_worker {
        return;
    }
    let now = clock::monotonic();
    if was_worker {
        let polls = from.read(&TASK_COMM)[0] == SQPOLL;
        let kind = if polls { CostKind::IoUringSqpoll } else { CostKind::IoUringWorker };
        charge(or_node(slot_of_current), kind, now.wrapping_sub(call.io_uring));
    }
    if leaves != 0 {
        settle(call, now);
        charge_pending(call);
        put(call, from.read(&TASK_ID), leaves);
    }
    call.kind = resumes;
    call.since = now;
    call.io_uring = if is_worker { now } else { 0 };
}

/// Keeps the call of a task that leaves its CPU.
#[inline(always)]
fn put(call: &mut RunningCall, task: u32, kind: u64) {
    let [first, second] = indices(task.into());
    let (Some(first), Some(second)) = (WAITING_CALLS.get_ptr_mut(first), WAITING_CALLS.get_ptr_mut(second)) else {
        return;
    };
    // SAFETY: entries of the map, which live as long as the program. Each access is one word, and another CPU may replace it.
    let place = unsafe {
        match (first.read_volatile(), second.read_volatile()) {
            (0, _) => first,
            (_, 0) => second,
            _ => {
                call.replaced += 1;
                first
            }
        }
    };
    // SAFETY: an entry of the map.
    unsafe { place.write_volatile(waiting_calls::word(task, kind)) };
}

/// Takes the call of a task that gets a CPU; zero if it is in none.
#[inline(always)]
fn take(task: u32) -> u64 {
    for index in indices(task.into()) {
        let Some(place) = WAITING_CALLS.get_ptr_mut(index) else { return 0 };
        // SAFETY: an entry of the map, which lives as long as the program.
        if let Some(kind) = waiting_calls::kind(unsafe { place.read_volatile() }, task) {
            // SAFETY: an entry of the map.
            unsafe { place.write_volatile(0) };
            return kind;
        }
    }
    0
}
