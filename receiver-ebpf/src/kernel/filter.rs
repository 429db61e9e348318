//! Filters: the packets to measure. Without a filter the verifier removes this code.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::map, maps::HashMap};
use undercurrent_ebpf::abi::{
    filter::{Criterion, FilterKey},
    group::Dimension,
    latency::IpVersion,
    workload::{Slot, ownership},
};

use super::{
    constant::constants,
    fields::{SkBuff, Sock},
    owner,
    payload::Buffer,
    pointer::{Probed, Ptr},
    unread::Segment,
};

constants! {
    /// Bits of the configured criteria and of the grouping dimensions.
    BY = "packets.by";
    /// Minimum number of packets in the receive queue.
    QUEUE = "filter.queue";
}

/// Values that select packets. User space adds and removes interfaces and workloads.
#[map]
static FILTER: HashMap<FilterKey, u32> = HashMap::with_max_entries(1, 0);

/// Attributes of a packet that a hook can read. `None` if the hook cannot read an attribute.
pub trait Subject {
    /// Inode of the network namespace.
    fn namespace(&self) -> Option<u32>;

    /// Index of the receiving or sending interface.
    fn interface(&self) -> Option<u32>;

    /// Local port.
    fn port(&self) -> Option<u16> {
        None
    }

    /// Packets in the socket's receive queue.
    fn queue(&self) -> Option<u32> {
        None
    }

    /// Process that reads the socket.
    fn process(&self) -> Option<u32> {
        None
    }

    /// Segments on the wire that the packet contains.
    fn segments(&self) -> u32 {
        1
    }

    /// Bytes after the IP header; of a packet before its transport protocol.
    fn bytes(&self, _: IpVersion) -> u32 {
        0
    }

    /// Name of the interface, padded with zeros.
    fn interface_name(&self) -> Option<[u64; 2]> {
        None
    }

    /// The connection or the packet that has the addresses; null if unknown.
    fn origin(&self) -> (Ptr<Sock, Probed>, Ptr<SkBuff, Probed>) {
        (Ptr::at(0), Ptr::at(0))
    }

    /// Returns a number that identifies the packet and its flow.
    #[inline(always)]
    fn identity(&self) -> Option<u64> {
        None
    }

    /// Returns the bytes that distinguish the packet from others of its flow, see [`tcp_header`](super::tcp_header::distinct_bytes).
    #[inline(always)]
    fn distinct(&self, _: IpVersion) -> Option<u32> {
        None
    }

    /// Returns a number that identifies the packet while it is in its socket's queue.
    #[inline(always)]
    fn address(&self) -> u64 {
        0
    }

    /// Returns true if programs of this hook have access to socket storage.
    #[inline(always)]
    fn has_storage(&self) -> bool {
        false
    }

    /// Returns the last segment in order of the connection that the current task reads.
    #[inline(always)]
    fn last_segment(&self) -> Segment {
        Segment::NONE
    }

    /// Copies the first bytes of the data that the current task reads, and returns their number; zero if they are unknown.
    fn payload(&self, _: *mut Buffer) -> u32 {
        0
    }
}

/// Returns the process id of the current task.
#[inline(always)]
pub fn current_process() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

/// The packets that a program measures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FilterMode {
    /// All packets, without groups.
    Off,
    /// Packets that the filter selects, grouped if configured. Without configuration this measures all packets too: kprobes
    /// use only this mode, since entering them costs more than the checks.
    On,
}

/// Runs a program's work as separate code for each mode, and returns zero. Common code would keep values for both and spill registers,
/// some eighty times in four layers.
///
/// A macro, because the compiler does not always inline a closure in both branches.
macro_rules! specialize {
    (|$mode:ident| $work:expr) => {{
        use $crate::kernel::filter::{FilterMode, has_criteria};
        if has_criteria() {
            let $mode = FilterMode::On;
            $work;
        } else {
            let $mode = FilterMode::Off;
            $work;
        }
        0
    }};
}
pub(crate) use specialize;

/// Returns true if packets are filtered or grouped.
#[inline(always)]
pub fn has_criteria() -> bool {
    if BY.get() == 0 {
        return false;
    }
    // A volatile load that differs from the other branch: the compiler would merge equal beginnings of both branches.
    let _ = QUEUE.get();
    true
}

/// Returns true if the filter has a criterion.
#[inline(always)]
pub fn has(criterion: Criterion) -> bool {
    BY.get() & criterion.bit() != 0
}

/// Returns true if packets are grouped by a dimension.
#[inline(always)]
pub fn groups_by(dimension: Dimension) -> bool {
    BY.get() & dimension.bit() != 0
}

/// Returns true if all criteria select a packet, except the workload; `None` if an attribute is unknown.
#[inline(always)]
pub fn selects(packet: &impl Subject) -> Option<bool> {
    let interface = || Some(FilterKey::interface(packet.namespace()?, packet.interface()?));
    let key = |criterion, number: Option<u32>| number.map(|number| FilterKey::of(criterion, number));
    let verdicts = [
        one(Criterion::Interface, interface),
        one(Criterion::Namespace, || key(Criterion::Namespace, packet.namespace())),
        one(Criterion::Port, || key(Criterion::Port, packet.port().map(u32::from))),
        one(Criterion::Process, || key(Criterion::Process, packet.process())),
        if has(Criterion::Queue) { packet.queue().map(|length| length >= QUEUE.get()) } else { Some(true) },
    ];
    all(verdicts)
}

/// Returns true if the filter selects the workload in a slot; `None` if the workload is unknown.
#[inline(always)]
fn selects_slot(slot: Slot) -> Option<bool> {
    if !has(Criterion::Workload) {
        return Some(true);
    }
    match slot {
        _ if owner::by() == ownership::OFF => None,
        Slot::NODE => Some(false),
        Slot::OVERFLOW => None,
        slot => one(Criterion::Workload, || Some(FilterKey::of(Criterion::Workload, slot.0.into()))),
    }
}

/// Combines the result of [`selects`] with the criterion for the workload in a slot.
#[inline(always)]
pub fn selects_all(others: Option<bool>, slot: Slot) -> Option<bool> {
    all([others, selects_slot(slot)])
}

#[inline(always)]
fn one(criterion: Criterion, key: impl FnOnce() -> Option<FilterKey>) -> Option<bool> {
    if !has(criterion) {
        return Some(true);
    }
    // SAFETY: only the presence of the value is used.
    key().map(|key| unsafe { FILTER.get(&key) }.is_some())
}

/// Returns false if one verdict is false, else `None` if one is unknown, else true.
#[inline(always)]
fn all<const N: usize>(verdicts: [Option<bool>; N]) -> Option<bool> {
    let mut all = Some(true);
    for verdict in verdicts {
        match verdict {
            Some(true) => {}
            Some(false) => return Some(false),
            None => all = None,
        }
    }
    all
}
