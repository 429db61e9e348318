//! States of readers: the last wakeup of each task, and the time at which it got a CPU after it.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::map, maps::Array};
use undercurrent_ebpf::abi::slow::{WAKEUPS, Wakeup};

use super::slow_cells;
use crate::kernel::{clock, constant::constants};

constants! {
    /// 1 if the wakeups of tasks are recorded.
    READER_STATES = "slow.reader_states";
}

/// The last wakeups, by the lower bits of the task's id.
#[map]
static LAST_WAKEUPS: Array<Wakeup> = Array::with_max_entries(1, 0);

/// Returns true if wakeups are recorded, a constant to the verifier.
#[inline(always)]
fn enabled() -> bool {
    slow_cells::enabled() && READER_STATES.get() != 0
}

/// Returns the entry of a task in the wakeups.
#[inline(always)]
fn wakeup(task: u32) -> Option<&'static mut Wakeup> {
    let entry = LAST_WAKEUPS.get_ptr_mut(task % WAKEUPS as u32)?;
    // SAFETY: an entry of the map, which lives as long as the program. The programs of another task with this entry write it at the
    // same time only on another CPU; `task` then belongs to one of them.
    Some(unsafe { &mut *entry })
}

/// Records the wakeup of a task.
#[inline(always)]
pub fn woken(task: u32) {
    if enabled()
        && let Some(entry) = wakeup(task)
    {
        *entry = Wakeup { woken: clock::monotonic(), running: 0, task: task.into() };
    }
}

/// Records that a task gets a CPU, the first time after its wakeup.
#[inline(always)]
pub fn switched(to: u32) {
    if enabled()
        && let Some(entry) = wakeup(to)
        && entry.task == u64::from(to)
        && entry.running == 0
    {
        entry.running = clock::monotonic();
    }
}

/// Returns the last wakeup of the current task, and the time at which it got a CPU; zero if unknown.
#[inline(always)]
pub fn of_current() -> [u64; 2] {
    let task = bpf_get_current_pid_tgid() as u32;
    match wakeup(task) {
        Some(entry) if entry.task == u64::from(task) => [entry.woken, entry.running],
        _ => [0; 2],
    }
}
