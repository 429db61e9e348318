//! Whose a packet, a socket or a moment of a task is: a cgroup's id, or a network namespace's, and the slot behind it.
//!
//! A socket belongs to the cgroup that reads it: the last reader's, kept with the socket; until somebody has read it, its
//! creator's. In the cgroup v2 hierarchy the kernel keeps the creator's itself (`sock.sk_cgrp_data`), so that a word is
//! kept for those sockets alone that somebody else reads.

use aya_ebpf::{
    helpers::{bpf_get_current_cgroup_id, generated::bpf_get_current_task_btf},
    macros::map,
    maps::Array,
};
use undercurrent_ebpf::abi::workload::{NAMESPACE, OwnerCells, OwnerLoss, Slot, ownership, places, slot_of};

use super::{
    cells::{self, ByCpu, MMAPABLE},
    fields::{
        CGROUP_NODE, CSS_CGROUP, CSS_SET_CPU, DEVICE_NET, NET_INODE, NODE_ID, SKB_DEVICE, SOCK_CGROUP, SOCK_STORAGE,
        TASK_CSS_SET,
    },
    storage::SocketWord,
};

/// One of [`ownership`].
#[unsafe(export_name = "owner.by")]
#[unsafe(link_section = ".rodata.flags")]
static BY: u32 = ownership::OFF;

/// Whether tracing programs may use what is kept with a socket (5.11 and later).
#[unsafe(export_name = "owner.storage")]
#[unsafe(link_section = ".rodata.flags")]
static STORAGE: u32 = 0;

/// From owners to slots.
#[map]
static OWNERS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// What stands with the node for want of knowledge.
#[map]
static OWNER_LOSSES: ByCpu<OwnerCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// The cgroup of a socket's last reader, where it is not the creator's.
#[unsafe(link_section = ".maps")]
#[unsafe(export_name = "READERS")]
static READERS: SocketWord = SocketWord::declared();

/// How owners are found; the verifier knows which.
#[inline(always)]
pub fn by() -> u32 {
    // SAFETY: a live static; volatile because the loader sets it.
    unsafe { core::ptr::read_volatile(&raw const BY) }
}

#[inline(always)]
fn storage() -> bool {
    // SAFETY: as above.
    unsafe { core::ptr::read_volatile(&raw const STORAGE) != 0 }
}

/// This CPU's counts.
#[inline(always)]
pub fn losses() -> Option<&'static mut OwnerCells> {
    cells::here(&OWNER_LOSSES)
}

#[inline(always)]
fn lost(loss: OwnerLoss) {
    if let Some(cells) = losses() {
        cells.lost[loss as usize] += 1;
    }
}

/// The slot of an owner.
#[inline(always)]
pub fn slot(owner: u64) -> Slot {
    if owner == 0 {
        lost(OwnerLoss::NoOwner);
        return Slot::NODE;
    }
    let [better, other] = places(owner);
    if let Some(slot) = slot_at(better, owner) {
        return slot;
    }
    slot_at(other, owner).unwrap_or_else(|| {
        lost(OwnerLoss::Unknown);
        Slot::NODE
    })
}

#[inline(always)]
fn slot_at(place: u32, owner: u64) -> Option<Slot> {
    slot_of(*OWNERS.get(place)?, owner)
}

/// The cgroup that the current task belongs to.
#[inline(always)]
pub fn of_current() -> u64 {
    if by() == ownership::UNIFIED {
        // SAFETY: a helper without arguments.
        return unsafe { bpf_get_current_cgroup_id() };
    }
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task_btf() } as *const u8;
    // SAFETY: the verifier follows typed pointers, and the kernel handles faults.
    unsafe {
        let set = TASK_CSS_SET.load(task) as *const u8;
        let state = CSS_SET_CPU.load(set) as *const u8;
        id(CSS_CGROUP.load(state) as *const u8)
    }
}

/// A cgroup's id.
///
/// # Safety
/// `cgroup` is a typed `struct cgroup *`.
#[inline(always)]
pub unsafe fn id(cgroup: *const u8) -> u64 {
    // SAFETY: by the caller; every kernel since 5.5 has both fields.
    unsafe { NODE_ID.load(CGROUP_NODE.load(cgroup) as *const u8) }
}

/// The cgroup whose task made a socket, as the kernel has it.
///
/// # Safety
/// `sock` is a typed `struct sock *`.
#[inline(always)]
unsafe fn creator(sock: *const u8) -> u64 {
    // Before 5.15 the pointer shares its word with flags and is no pointer to the verifier.
    if by() != ownership::UNIFIED || !SOCK_CGROUP.present() {
        return 0;
    }
    // SAFETY: by the caller, and the field was checked for.
    unsafe { id(SOCK_CGROUP.load(sock) as *const u8) }
}

/// The owner of a socket, for tracing programs.
///
/// # Safety
/// `sock` is a typed and trusted `struct sock *`.
#[inline(always)]
pub unsafe fn of_socket(sock: *const u8) -> u64 {
    // SAFETY: by the caller.
    if storage()
        && unsafe { SOCK_STORAGE.load(sock) } != 0
        // SAFETY: by the caller.
        && let Some(reader) = unsafe { READERS.get(sock) }
    {
        return reader;
    }
    // SAFETY: by the caller.
    unsafe { creator(sock) }
}

/// The reader of a socket that a program in its cgroup's path sees; `None` where the creator still owns it.
///
/// # Safety
/// `sock` is a socket of the program's context, checked for null.
#[inline(always)]
pub unsafe fn reader(sock: *const u8) -> Option<u64> {
    // SAFETY: by the caller.
    unsafe { READERS.get(sock) }
}

/// The current task has read a socket.
///
/// # Safety
/// As for [`of_socket`].
#[inline(always)]
pub unsafe fn read_by_current(sock: *const u8) {
    let reader = of_current();
    // SAFETY: by the caller.
    let unchanged = unsafe { SOCK_STORAGE.load(sock) == 0 && creator(sock) == reader };
    // SAFETY: by the caller.
    if !unchanged && !unsafe { READERS.set(sock, reader) } {
        lost(OwnerLoss::StorageRefused);
    }
}

/// The current task has made a socket.
///
/// # Safety
/// `sock` is a socket of the program's context.
#[inline(always)]
pub unsafe fn created_by_current(sock: *const u8) {
    // SAFETY: by the caller.
    if !unsafe { READERS.set(sock, of_current()) } {
        lost(OwnerLoss::StorageRefused);
    }
}

/// The network namespace that a packet arrived in.
///
/// # Safety
/// `skb` is a typed `sk_buff` pointer of a packet that has its device.
#[inline(always)]
pub unsafe fn namespace(skb: *const u8) -> u64 {
    // SAFETY: by the caller; every kernel has these fields.
    unsafe {
        let device = SKB_DEVICE.load(skb) as *const u8;
        let net = DEVICE_NET.load(device) as *const u8;
        NAMESPACE | u64::from(NET_INODE.load(net))
    }
}
