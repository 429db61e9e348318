//! Creation, removal and renaming of cgroups.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::generated::bpf_probe_read_kernel_str,
    macros::{btf_tracepoint, map},
    maps::RingBuf,
    programs::BtfTracePointContext,
};
use undercurrent_ebpf::abi::workload::{CgroupEvent, PATH_BYTES, change};

use crate::kernel::{
    constant::constants,
    context::Arguments as _,
    field::read_at,
    fields::{CGROUP_CPU, CGROUP_ROOT, Cgroup, ENTITY_RUNTIME, GROUP_ENTITIES, ROOT_HIERARCHY, TaskGroup},
    owner,
    pointer::{Probed, Ptr},
};

/// Size of the ring in bytes: some five hundred events.
const SIZE: u32 = 256 * 1024;
/// High-water mark of the ring in bytes: above it, each event wakes the reader.
const HIGH_WATER: u64 = SIZE as u64 / 4;

#[map]
static CGROUPS: RingBuf = RingBuf::with_byte_size(SIZE, 0);

constants! {
    /// The number of the hierarchy that identifies workloads.
    HIERARCHY = "cgroup.hierarchy";
    /// One more than the highest id of a CPU.
    CPUS = "cgroup.cpus";
}

/// Tracepoint `cgroup_mkdir(struct cgroup *cgrp, const char *path)`.
#[btf_tracepoint(function = "cgroup_mkdir")]
fn cgroup_mkdir(ctx: BtfTracePointContext) -> i32 {
    changed(&ctx, change::MADE)
}

/// Tracepoint `cgroup_rmdir(struct cgroup *cgrp, const char *path)`.
#[btf_tracepoint(function = "cgroup_rmdir")]
fn cgroup_rmdir(ctx: BtfTracePointContext) -> i32 {
    changed(&ctx, change::REMOVED)
}

/// Tracepoint `cgroup_rename(struct cgroup *cgrp, const char *path)`.
#[btf_tracepoint(function = "cgroup_rename")]
fn cgroup_rename(ctx: BtfTracePointContext) -> i32 {
    changed(&ctx, change::RENAMED)
}

#[inline(always)]
fn changed(ctx: &BtfTracePointContext, change: u32) -> i32 {
    let cgroup: Ptr<Cgroup> = ctx.pointer(0);
    let followed = HIERARCHY.get() as i32;
    let id = owner::cgroup_id(cgroup);
    if cgroup.follow(&CGROUP_ROOT).read(&ROOT_HIERARCHY) != followed {
        return 0;
    }
    let Some(mut entry) = CGROUPS.reserve::<CgroupEvent>(0) else {
        if let Some(cells) = owner::losses() {
            cells.unheard += 1;
        }
        return 0;
    };
    let event = entry.as_mut_ptr();
    let path: *const u8 = ctx.arg(1);
    let cpu_time = if change == change::REMOVED { cpu_time(cgroup) } else { 0 };
    // SAFETY: the program owns the reserved record until it submits it, and the helper writes at most `PATH_BYTES` to `path`.
    unsafe {
        (*event).id = id;
        (*event).cpu_time = cpu_time;
        (*event).change = change;
        let buffer = (&raw mut (*event).path).cast();
        (*event).length = bpf_probe_read_kernel_str(buffer, PATH_BYTES as u32, path.cast()) as i32;
    }
    entry.submit(wakeup(change));
    0
}

/// Returns the CPU time of a cgroup and its descendants in nanoseconds, without real-time tasks; zero if it is unknown. The scheduler adds
/// the time of each task to the entities of its cgroup and of all above (`update_curr` in kernel/sched/fair.c, Linux 5.10 to 6.18).
/// The memory of a removed cgroup remains until its last reference ends.
#[inline(always)]
fn cpu_time(cgroup: Ptr<Cgroup>) -> u64 {
    if !CGROUP_CPU.present() || !GROUP_ENTITIES.present() {
        return 0;
    }
    // The state of a controller is the beginning of its own struct.
    let group = cgroup.probed().follow(&CGROUP_CPU).cast::<TaskGroup>();
    if group.is_null() {
        return 0;
    }
    let entities = group.read(&GROUP_ENTITIES);
    let mut sum: u64 = 0;
    for cpu in 0..CPUS.get() {
        let entity = read_at(entities + 8 * u64::from(cpu)).unwrap_or(0);
        sum += Ptr::<_, Probed>::at(entity).read(&ENTITY_RUNTIME);
    }
    sum
}

/// Returns the flag for `bpf_ringbuf_submit`. Removals can wait for the next snapshot while the ring has room. All other events
/// force a wakeup: the kernel's default would skip it, since the reader has not caught up with the removals.
#[inline(always)]
fn wakeup(change: u32) -> u64 {
    let waits = change == change::REMOVED && CGROUPS.query(BPF_RB_AVAIL_DATA.into()) < HIGH_WATER;
    u64::from(if waits { BPF_RB_NO_WAKEUP } else { BPF_RB_FORCE_WAKEUP })
}
