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
use undercurrent_ebpf::abi::{
    cast::CONTEXT,
    workload::{NAMESPACE, OwnerCells, OwnerLoss, Slot, cached, ownership, places, slot_of},
};

use super::{
    cells::{self, ByCpu, MMAPABLE},
    fields::{
        CGROUP_NODE, CSS_CGROUP, CSS_SET_CPU, DEVICE_NET, NET_INODE, NODE_ID, SKB_DEVICE, SKB_SK, SOCK_CGROUP,
        SOCK_COOKIE, SOCK_STORAGE, TASK_CSS_SET,
    },
    pointer::{Pointer, Typed},
    set_outside,
    storage::SocketWord,
};

/// One of [`ownership`].
#[unsafe(export_name = "owner.by")]
#[unsafe(link_section = ".rodata.flags")]
static BY: u32 = ownership::OFF;

/// Whether tracing programs may use what is kept with a socket, and follow the current task's fields (both since 5.11).
#[unsafe(export_name = "owner.storage")]
#[unsafe(link_section = ".rodata.flags")]
static STORAGE: u32 = 0;

/// Whether a program's context can be turned into the kernel's own packet (6.2 and later).
#[unsafe(export_name = "owner.cast")]
#[unsafe(link_section = ".rodata.flags")]
static CASTS: u32 = 0;

/// From owners to slots.
#[map]
static OWNERS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// What stands with the node for want of knowledge.
#[map]
static OWNER_LOSSES: ByCpu<OwnerCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// Slots of sockets that had packets lately.
#[map]
static SOCKETS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Counts up whenever the table of owners has changed, and now and then besides: what was cached before is looked up
/// again. Below `1 << cached::EPOCH`; user space clears the cache before it begins anew.
#[unsafe(export_name = "owner.epoch")]
#[unsafe(link_section = ".data.owner")]
static EPOCH: u64 = 1;

/// The cgroup of a socket's last reader, where it is not the creator's.
#[unsafe(link_section = ".maps")]
#[unsafe(export_name = "READERS")]
static READERS: SocketWord = SocketWord::declared();

/// How owners are found; the verifier knows which.
#[inline(always)]
pub fn by() -> u32 {
    set_outside(&BY)
}

/// A slot that is asked for only where owners are told apart; else the node's.
#[inline(always)]
pub fn or_node(slot: impl FnOnce() -> Slot) -> Slot {
    if by() == ownership::OFF { Slot::NODE } else { slot() }
}

/// Whether something can be kept with a socket.
#[inline(always)]
pub fn storage() -> bool {
    set_outside(&STORAGE) != 0
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

/// In the place of a slot: nothing says whose it is. Slots do not get this far.
const NO_OWNER: Slot = Slot((1 << cached::SLOT) - 1);
/// In the place of a slot: the owner is not in the table.
const UNKNOWN: Slot = Slot((1 << cached::SLOT) - 2);

/// The slot of an owner, or why there is none.
#[inline(always)]
fn look_up(owner: u64) -> Slot {
    if owner == 0 {
        return NO_OWNER;
    }
    let [better, other] = places(owner);
    slot_at(better, owner).or_else(|| slot_at(other, owner)).unwrap_or(UNKNOWN)
}

/// The slot to count under: where there is none that is counted, and the node has the event.
#[inline(always)]
fn settled(slot: Slot) -> Slot {
    match slot {
        NO_OWNER => lost(OwnerLoss::NoOwner),
        UNKNOWN => lost(OwnerLoss::Unknown),
        slot => return slot,
    }
    Slot::NODE
}

/// The slot of an owner.
#[inline(always)]
pub fn slot(owner: u64) -> Slot {
    settled(look_up(owner))
}

#[inline(always)]
fn slot_at(place: u32, owner: u64) -> Option<Slot> {
    slot_of(*OWNERS.get(place)?, owner)
}

/// The kernel's own packet behind the context of a program in a cgroup's path; `None` where the kernel does not give it.
///
/// # Safety
/// `context` is the program's context.
#[inline(always)]
pub unsafe fn packet(context: *const u8) -> Option<*const u8> {
    if set_outside(&CASTS) == 0 {
        return None;
    }
    // SAFETY: the loader replaces the call; the verifier makes it a move of the context's pointer.
    let cast: unsafe extern "C" fn(*const u8) -> *const u8 = unsafe { core::mem::transmute(CONTEXT) };
    // SAFETY: by the caller; the verifier follows typed pointers.
    Some(unsafe { cast(context) })
}

/// The socket that a packet is for, typed, where the kernel gives it.
///
/// # Safety
/// `context` is the program's context, of a packet that has its socket.
#[inline(always)]
pub unsafe fn receiving_socket(context: *const u8) -> Option<*const u8> {
    // SAFETY: by the caller.
    let sock = unsafe { SKB_SK.load(packet(context)?) } as *const u8;
    if sock.is_null() { None } else { Some(sock) }
}

/// The cookie of the socket that a packet is for; `None` where it has none yet, or where only a helper tells. A load is
/// much cheaper than a helper where returns are guarded against speculation.
///
/// # Safety
/// As for [`receiving_socket`].
#[inline(always)]
pub unsafe fn cookie(context: *const u8) -> Option<u64> {
    // SAFETY: by the caller.
    let sock = unsafe { receiving_socket(context) }?;
    // SAFETY: as above.
    Some(unsafe { SOCK_COOKIE.load(sock) }).filter(|cookie| *cookie != 0)
}

/// The slot of a socket with a cookie, cached: the owner is asked for, and looked up, once an epoch.
#[inline(always)]
pub fn slot_of_socket(cookie: u64, owner: impl Fn() -> u64) -> Slot {
    cached_slot(cookie, 0, owner)
}

/// The slot in the cache where it has all of a mark, else that of the owner, which is cached with it.
#[inline(always)]
fn cached_slot(cookie: u64, mark: u64, owner: impl Fn() -> u64) -> Slot {
    // Before the table: what is looked up while the epoch changes belongs to the one before.
    let tag = cached::tag(cookie, set_outside(&EPOCH));
    let Some(entry) = SOCKETS.get_ptr_mut(cached::place(cookie)) else { return Slot::NODE };
    // SAFETY: an entry of the map, which lives as long as the program.
    let found = unsafe { *entry };
    if found & mark == mark
        && let Some(slot) = cached::slot(found, tag)
    {
        return settled(slot);
    }
    let slot = look_up(owner());
    // SAFETY: as above; another CPU's entry for another socket may be lost, and is looked up again.
    unsafe { *entry = tag | mark | u64::from(slot.0) };
    settled(slot)
}

/// The cgroup that the current task belongs to; zero where programs cannot say.
#[inline(always)]
pub fn of_current() -> u64 {
    if by() == ownership::UNIFIED {
        // SAFETY: a helper without arguments.
        return unsafe { bpf_get_current_cgroup_id() };
    }
    if !storage() {
        return 0;
    }
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task_btf() } as *const u8;
    // SAFETY: what the helper returns.
    let task = unsafe { Typed::new(task) };
    id(task.follow(&TASK_CSS_SET).follow(&CSS_SET_CPU).follow(&CSS_CGROUP))
}

/// The same where owners are told apart; else zero.
#[inline(always)]
pub fn current() -> u64 {
    if by() == ownership::OFF { 0 } else { of_current() }
}

/// The id of a `cgroup`.
#[inline(always)]
pub fn id(cgroup: impl Pointer) -> u64 {
    // Every kernel since 5.5 has both fields.
    cgroup.follow(&CGROUP_NODE).read(&NODE_ID)
}

/// The cgroup whose task made a `sock`, as the kernel has it.
#[inline(always)]
pub fn creator(sock: impl Pointer) -> u64 {
    // Before 5.15 the pointer shares its word with flags and is no pointer to the verifier.
    if by() != ownership::UNIFIED || !SOCK_CGROUP.present() {
        return 0;
    }
    id(sock.follow(&SOCK_CGROUP))
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
    creator(unsafe { Typed::new(sock) })
}

/// The slot of a socket's owner, for tracing programs; the node's where nothing is told apart.
///
/// # Safety
/// As for [`of_socket`].
#[inline(always)]
pub unsafe fn slot_of_owner(sock: *const u8) -> Slot {
    // SAFETY: by the caller.
    if by() == ownership::OFF {
        return Slot::NODE;
    }
    // Programs keep every owner where the kernel does not, and the cache spares the helper's call.
    if by() != ownership::UNIFIED {
        // SAFETY: by the caller.
        let cookie = unsafe { SOCK_COOKIE.load(sock) };
        if cookie != 0 {
            // SAFETY: by the caller.
            return slot_of_socket(cookie, || unsafe { of_socket(sock) });
        }
    }
    // SAFETY: by the caller.
    slot(unsafe { of_socket(sock) })
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

/// The current task has read a socket. Yields the cgroup that it belongs to; zero where programs cannot say, or nobody asks.
///
/// # Safety
/// As for [`of_socket`].
#[inline(always)]
pub unsafe fn read_by_current(sock: *const u8) -> u64 {
    let reader = current();
    // SAFETY: by the caller.
    if by() != ownership::OFF
        && storage()
        && unsafe { SOCK_STORAGE.load(sock) != 0 || creator(Typed::new(sock)) != reader }
    {
        // SAFETY: by the caller.
        match unsafe { READERS.set(sock, reader) } {
            Some(true) => forget(unsafe { SOCK_COOKIE.load(sock) }),
            Some(false) => {}
            None => lost(OwnerLoss::StorageRefused),
        }
    }
    reader
}

/// The slot of the current task, which has read a socket; the node's where nothing is told apart.
///
/// # Safety
/// As for [`of_socket`].
#[inline(always)]
pub unsafe fn slot_of_new_reader(sock: *const u8) -> Slot {
    // SAFETY: by the caller.
    if by() == ownership::OFF { Slot::NODE } else { slot(unsafe { read_by_current(sock) }) }
}

/// A socket has another owner than its cached slot may say.
#[inline(always)]
fn forget(cookie: u64) {
    if let Some(entry) = SOCKETS.get_ptr_mut(cached::place(cookie)) {
        // SAFETY: an entry of the map.
        unsafe { *entry = 0 };
    }
}

/// The current task has made a socket.
///
/// # Safety
/// `sock` is a socket of the program's context.
#[inline(always)]
pub unsafe fn created_by_current(sock: *const u8) {
    // SAFETY: by the caller.
    if unsafe { READERS.set(sock, of_current()) }.is_none() {
        lost(OwnerLoss::StorageRefused);
    }
}

/// The slot of the cgroup that the current task belongs to.
#[inline(always)]
pub fn slot_of_current() -> Slot {
    slot(of_current())
}

/// The slot of whoever reads a socket: its last reader's, where that is cached, which is another one's only in the first
/// read after the socket went from one reader to the next; else the current task's, which takes a helper.
///
/// # Safety
/// `sock` is a typed `struct sock *`, or null.
#[inline(always)]
pub unsafe fn slot_of_reader(sock: *const u8) -> Slot {
    // SAFETY: by the caller, and checked for null.
    let cookie = if sock.is_null() { 0 } else { unsafe { SOCK_COOKIE.load(sock) } };
    if cookie == 0 { slot_of_current() } else { cached_slot(cookie, cached::READ, of_current) }
}

/// The slot of the network namespace that a packet arrived in, a `sk_buff` that has its device.
#[inline(always)]
pub fn slot_of_namespace(skb: impl Pointer) -> Slot {
    slot(NAMESPACE | u64::from(skb.follow(&SKB_DEVICE).follow(&DEVICE_NET).read(&NET_INODE)))
}
