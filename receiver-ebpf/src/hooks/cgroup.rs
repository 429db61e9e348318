//! Cgroups that come and go.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::generated::bpf_probe_read_kernel_str,
    macros::{btf_tracepoint, map},
    maps::RingBuf,
    programs::BtfTracePointContext,
};
use undercurrent_ebpf::abi::workload::{CgroupEvent, PATH_BYTES, change};

use crate::kernel::{
    fields::{CGROUP_ROOT, ROOT_HIERARCHY},
    owner,
    pointer::Typed,
    set_outside,
};

/// Bytes of changes that are kept: some five hundred changes.
const ROOM: u32 = 256 * 1024;
/// Bytes of changes from which on nothing waits for the next snapshot.
const PATIENCE: u64 = ROOM as u64 / 4;

#[map]
static CGROUPS: RingBuf = RingBuf::with_byte_size(ROOM, 0);

/// The number of the hierarchy that says whose a task is.
#[unsafe(export_name = "cgroup.hierarchy")]
#[unsafe(link_section = ".rodata.flags")]
static HIERARCHY: i32 = 0;

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
    let cgroup: *const u8 = ctx.arg(0);
    let followed = set_outside(&HIERARCHY);
    // SAFETY: argument 0 is the cgroup.
    let (id, hierarchy) =
        unsafe { (owner::id(Typed::new(cgroup)), ROOT_HIERARCHY.load(CGROUP_ROOT.load(cgroup) as *const u8)) };
    if hierarchy != followed {
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
    // SAFETY: the record is ours until it is submitted, and its path takes as many bytes as are asked for.
    unsafe {
        (*event).id = id;
        (*event).change = change;
        let room = (&raw mut (*event).path).cast();
        (*event).length = bpf_probe_read_kernel_str(room, PATH_BYTES as u32, path.cast()) as i32;
    }
    entry.submit(wakeup(change));
    0
}

/// Whether whoever reads the ring is woken, as flags of `bpf_ringbuf_submit`: what has gone can wait for the next snapshot,
/// as long as there is room. What waits hides from the kernel that nobody is awake, so all others have to say so.
#[inline(always)]
fn wakeup(change: u32) -> u64 {
    let waits = change == change::REMOVED && CGROUPS.query(BPF_RB_AVAIL_DATA.into()) < PATIENCE;
    u64::from(if waits { BPF_RB_NO_WAKEUP } else { BPF_RB_FORCE_WAKEUP })
}
