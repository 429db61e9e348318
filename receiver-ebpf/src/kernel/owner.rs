//! Attribution of packets, sockets and tasks: a cgroup id or network namespace, and its slot.
//!
//! A socket belongs to the cgroup of its last reader, which socket storage keeps. Until the first read it belongs to the
//! cgroup of its creator. On cgroup v2 the kernel keeps the creator (`sock.sk_cgrp_data`), so storage is needed only for
//! sockets with a reader in another cgroup.

use aya_ebpf::{
    EbpfContext as _,
    bindings::bpf_sock,
    helpers::{bpf_get_current_cgroup_id, bpf_get_socket_cookie, generated::bpf_get_current_task_btf},
    macros::map,
    maps::Array,
    programs::SockAddrContext,
};
use undercurrent_ebpf::abi::workload::{NAMESPACE, OwnerCells, OwnerLoss, Slot, cached, indices, ownership, slot_of};

use super::{
    cells::{self, ByCpu, MMAPABLE},
    constant::constants,
    context::SkbContext,
    fields::{
        CGROUP_KN, CSS_CGROUP, CSS_SET_CPU, Cgroup, DEVICE_NET, KERNFS_ID, NET_INODE, SKB_DEVICE, SOCK_CGROUP,
        SOCK_COOKIE, SOCK_STORAGE, SkBuff, Sock, TASK_CSS_SET, TASK_FLAGS, Task,
    },
    pointer::{Access, Ptr},
    shared,
    storage::{SocketWord, StorageOwner},
    variable,
};

constants! {
    /// One of [`ownership`].
    BY = "owner.by", ownership::OFF;
    /// 1 if tracing programs can use socket storage and read the current task's fields (both since 5.11).
    STORAGE = "owner.storage";
}

/// The table from owners to slots.
#[map]
static OWNERS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Events counted for the node because their owner is unknown.
#[map]
static OWNER_LOSSES: ByCpu<OwnerCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// Cache from sockets to slots.
#[map]
static SOCKETS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Counts changes of the table of owners, plus periodic increments. Cached slots of an earlier epoch are looked up again.
/// Below `1 << cached::EPOCH`: user space clears the cache before the count wraps around.
#[unsafe(export_name = "owner.epoch")]
#[unsafe(link_section = ".data.owner")]
static EPOCH: u64 = 1;

/// The cgroup of a socket's last reader, if it differs from the creator's.
#[unsafe(link_section = ".maps")]
#[unsafe(export_name = "READERS")]
static READERS: SocketWord = SocketWord::declared();

/// Returns the configured [`ownership`], a constant to the verifier.
#[inline(always)]
pub fn by() -> u32 {
    BY.get()
}

/// Computes a slot if attribution is on; else returns the node's slot.
#[inline(always)]
pub fn or_node(slot: impl FnOnce() -> Slot) -> Slot {
    if by() == ownership::OFF { Slot::NODE } else { slot() }
}

/// Returns true if tracing programs can use socket storage.
#[inline(always)]
pub fn storage() -> bool {
    STORAGE.get() != 0
}

/// Returns the loss counters of the current CPU.
#[inline(always)]
pub fn losses() -> Option<&'static mut OwnerCells> {
    cells::here(&OWNER_LOSSES)
}

#[inline(always)]
fn lost(loss: OwnerLoss) {
    if let Some(cells) = losses() {
        // Several programs count, and one may interrupt another.
        shared::add(&raw mut cells.lost[loss as usize], 1);
    }
}

/// Cached instead of a slot: the socket has no known owner. Slots of workloads are smaller.
const NO_OWNER: Slot = Slot((1 << cached::SLOT) - 1);
/// Cached instead of a slot: the owner is not in the table.
const UNKNOWN: Slot = Slot((1 << cached::SLOT) - 2);

/// Returns the slot of an owner, or [`NO_OWNER`] or [`UNKNOWN`].
#[inline(always)]
fn look_up(owner: u64) -> Slot {
    if owner == 0 {
        return NO_OWNER;
    }
    let [first, second] = indices(owner);
    slot_at(first, owner).or_else(|| slot_at(second, owner)).unwrap_or(UNKNOWN)
}

/// Replaces [`NO_OWNER`] and [`UNKNOWN`] by the node's slot and counts them.
#[inline(always)]
fn or_lost(slot: Slot) -> Slot {
    match slot {
        NO_OWNER => lost(OwnerLoss::NoOwner),
        UNKNOWN => lost(OwnerLoss::UnknownOwner),
        slot => return slot,
    }
    Slot::NODE
}

/// Returns the slot of an owner.
#[inline(always)]
pub fn slot(owner: u64) -> Slot {
    or_lost(look_up(owner))
}

#[inline(always)]
fn slot_at(index: u32, owner: u64) -> Option<Slot> {
    slot_of(*OWNERS.get(index)?, owner)
}

/// Returns the cookie of a packet's receiving socket; `None` if only a helper can read or create it. A load costs much
/// less than a helper on hosts that protect returns against speculation.
#[inline(always)]
pub fn cookie(context: SkbContext) -> Option<u64> {
    Some(context.kernel_socket()?.read(&SOCK_COOKIE)).filter(|cookie| *cookie != 0)
}

/// Returns the slot of a socket by its cookie. It calls `owner` and looks up its slot once per epoch.
#[inline(always)]
pub fn slot_of_socket(cookie: u64, owner: impl Fn() -> u64) -> Slot {
    cached_slot(cookie, 0, owner)
}

/// Returns the cached slot if its entry contains all bits of `mark`; else looks up the owner's slot and caches it with `mark`.
#[inline(always)]
fn cached_slot(cookie: u64, mark: u64, owner: impl Fn() -> u64) -> Slot {
    // The epoch is read before the table: a lookup during a change of epoch belongs to the earlier epoch.
    let tag = cached::tag(cookie, variable(&EPOCH));
    let Some(entry) = SOCKETS.get_ptr_mut(cached::index(cookie)) else { return Slot::NODE };
    // SAFETY: an entry of the map, which lives as long as the program.
    let found = unsafe { *entry };
    if found & mark == mark
        && let Some(slot) = cached::slot(found, tag)
    {
        return or_lost(slot);
    }
    let slot = look_up(owner());
    // SAFETY: an entry of the map. This may overwrite another socket's entry, which is then looked up again.
    unsafe { *entry = tag | mark | u64::from(slot.0) };
    or_lost(slot)
}

/// Returns the cgroup of the current task; zero if programs cannot read it.
#[inline(always)]
pub fn of_current() -> u64 {
    if by() == ownership::UNIFIED {
        // SAFETY: the helper has no arguments.
        return unsafe { bpf_get_current_cgroup_id() };
    }
    if !storage() {
        return 0;
    }
    // SAFETY: the helper returns a typed `task_struct`.
    let task = unsafe { Ptr::<Task>::typed(bpf_get_current_task_btf() as *const Task) };
    cgroup_id(task.follow(&TASK_CSS_SET).follow(&CSS_SET_CPU).follow(&CSS_CGROUP))
}

/// Returns the cgroup of the current task if attribution is on; else zero.
#[inline(always)]
pub fn current() -> u64 {
    if by() == ownership::OFF { 0 } else { of_current() }
}

/// Returns the id of a cgroup. Every kernel since 5.5 has both fields.
#[inline(always)]
pub fn cgroup_id<A: Access>(cgroup: Ptr<Cgroup, A>) -> u64 {
    cgroup.follow(&CGROUP_KN).read(&KERNFS_ID)
}

/// Returns the cgroup of the task that created a socket; zero if the kernel does not keep it.
#[inline(always)]
pub fn creator<A: Access>(sock: Ptr<Sock, A>) -> u64 {
    // Before 5.15 the pointer shares its word with flags, and the verifier does not accept it as a pointer.
    if by() != ownership::UNIFIED || !SOCK_CGROUP.present() {
        return 0;
    }
    cgroup_id(sock.follow(&SOCK_CGROUP))
}

/// Returns the owner of a trusted socket, for tracing programs.
#[inline(always)]
pub fn of_socket(sock: Ptr<Sock>) -> u64 {
    if storage()
        && sock.read(&SOCK_STORAGE) != 0
        && let Some(reader) = READERS.get(sock)
    {
        return reader;
    }
    creator(sock)
}

/// Returns the slot of a trusted socket's owner, for tracing programs; the node's slot if attribution is off.
#[inline(always)]
pub fn slot_of_owner(sock: Ptr<Sock>) -> Slot {
    if by() == ownership::OFF {
        return Slot::NODE;
    }
    // On cgroup v1 every owner is in socket storage, and the cache saves the call of its helper.
    if by() != ownership::UNIFIED {
        let cookie = sock.read(&SOCK_COOKIE);
        if cookie != 0 {
            return slot_of_socket(cookie, || of_socket(sock));
        }
    }
    slot(of_socket(sock))
}

/// Returns the last reader of a socket; `None` if the creator still owns it.
#[inline(always)]
pub fn reader(sock: impl StorageOwner) -> Option<u64> {
    READERS.get(sock)
}

/// Records that the current task has read a trusted socket. Returns the cgroup of the task; zero if programs cannot read it, or
/// attribution is off.
#[inline(always)]
pub fn read_by_current(sock: Ptr<Sock>) -> u64 {
    let reader = current();
    if by() != ownership::OFF && storage() && (sock.read(&SOCK_STORAGE) != 0 || creator(sock) != reader) {
        match READERS.set(sock, reader) {
            Some(true) => forget(sock.read(&SOCK_COOKIE)),
            Some(false) => {}
            None => lost(OwnerLoss::StorageRefused),
        }
    }
    reader
}

/// Records the first read of a trusted socket in an epoch, which is not measured. Later reads are compared with the owner if they are
/// measured: the helper for the task's cgroup costs more than the rest of the program.
#[inline(always)]
pub fn learn_reader(sock: Ptr<Sock>) {
    if by() == ownership::OFF || !storage() {
        return;
    }
    let cookie = sock.read(&SOCK_COOKIE);
    let tag = cached::tag(cookie, variable(&EPOCH));
    let Some(entry) = SOCKETS.get_ptr_mut(cached::index(cookie)) else { return };
    // SAFETY: an entry of the map, which lives as long as the program.
    let found = unsafe { *entry };
    if cookie != 0 && found & cached::READ != 0 && cached::slot(found, tag).is_some() {
        return;
    }
    let slot = look_up(read_by_current(sock));
    if cookie != 0 {
        // SAFETY: an entry of the map. This may overwrite another socket's entry, which is then looked up again.
        unsafe { *entry = tag | cached::READ | u64::from(slot.0) };
    }
}

/// Records that the current task has read a trusted socket. Returns the slot of the task; the node's slot if attribution is off.
#[inline(always)]
pub fn slot_of_new_reader(sock: Ptr<Sock>) -> Slot {
    if by() == ownership::OFF { Slot::NODE } else { slot(read_by_current(sock)) }
}

/// Removes the cached slot of a socket after a change of owner.
#[inline(always)]
fn forget(cookie: u64) {
    if let Some(entry) = SOCKETS.get_ptr_mut(cached::index(cookie)) {
        // SAFETY: an entry of the map, which lives as long as the program.
        unsafe { *entry = 0 };
    }
}

/// `PF_KTHREAD` of `include/linux/sched.h` (5.10 to 7.3).
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Records that the current task listens or connects with a trusted socket. On cgroup v2 the kernel keeps the owner, also of a socket
/// that it creates itself, as for a subflow of Multipath TCP.
#[inline(always)]
pub fn opened_by_current(sock: Ptr<Sock>) {
    if by() != ownership::CPU || !storage() {
        return;
    }
    // SAFETY: the helper returns a typed `task_struct`.
    let task = unsafe { Ptr::<Task>::typed(bpf_get_current_task_btf() as *const Task) };
    // A worker of the kernel opens further subflows for its users.
    if task.read(&TASK_FLAGS) & KERNEL_THREAD != 0 {
        return;
    }
    match READERS.set(sock, of_current()) {
        Some(true) => forget(sock.read(&SOCK_COOKIE)),
        Some(false) => {}
        None => lost(OwnerLoss::StorageRefused),
    }
}

/// Records that the current task has created a socket.
#[inline(always)]
pub fn created_by_current(sock: impl StorageOwner) {
    if READERS.set(sock, of_current()).is_none() {
        lost(OwnerLoss::StorageRefused);
    }
}

/// Records that the current task has read a datagram from the socket of the context.
#[inline(always)]
pub fn datagram_read_by_current(ctx: &SockAddrContext) {
    if by() == ownership::OFF {
        return;
    }
    // SAFETY: the context of the running program; the verifier rewrites the load, and knows that the socket is not null.
    let socket: *const bpf_sock = unsafe { (*ctx.sock_addr).__bindgen_anon_1.sk };
    match READERS.set(socket, of_current()) {
        // SAFETY: the helper takes the context.
        Some(true) => forget(unsafe { bpf_get_socket_cookie(ctx.as_ptr()) }),
        Some(false) => {}
        None => lost(OwnerLoss::StorageRefused),
    }
}

/// Returns the slot of the current task's cgroup.
#[inline(always)]
pub fn slot_of_current() -> Slot {
    slot(of_current())
}

/// Returns the slot of the current task's cgroup; the node's slot, without a loss, if it is not in the table.
#[inline(always)]
pub fn slot_of_current_or_node() -> Slot {
    match look_up(of_current()) {
        NO_OWNER | UNKNOWN => Slot::NODE,
        slot => slot,
    }
}

/// Returns the slot of a socket's reader, for an untrusted pointer or null: the cached slot of the last reader, else the slot
/// of the current task, which takes a helper. The cached slot is wrong only for the first read by a new reader.
#[inline(always)]
pub fn slot_of_reader(sock: Ptr<Sock>) -> Slot {
    let cookie = if sock.is_null() { 0 } else { sock.read(&SOCK_COOKIE) };
    if cookie == 0 { slot_of_current() } else { cached_slot(cookie, cached::READ, of_current) }
}

/// Returns the slot of the network namespace that received a packet. The packet must have its device.
#[inline(always)]
pub fn slot_of_namespace<A: Access>(skb: Ptr<SkBuff, A>) -> Slot {
    slot(NAMESPACE | u64::from(skb.follow(&SKB_DEVICE).follow(&DEVICE_NET).read(&NET_INODE)))
}
