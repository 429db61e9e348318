//! Which packets are measured. Where nothing is asked for, nothing of this is left in the programs.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::map, maps::HashMap};
use undercurrent_ebpf::abi::{
    filter::{Choice, Criterion},
    group::Dimension,
    workload::{Slot, ownership},
};

use super::{owner, set_outside};

/// The bits of the criteria that are asked for, and of what packets are told apart by.
#[unsafe(export_name = "packets.by")]
#[unsafe(link_section = ".rodata.flags")]
static BY: u32 = 0;

/// Packets that a receive queue has at least.
#[unsafe(export_name = "filter.queue")]
#[unsafe(link_section = ".rodata.flags")]
static QUEUE: u32 = 0;

/// What chooses a packet. User space follows interfaces and workloads as they come and go.
#[map]
static CHOICES: HashMap<Choice, u32> = HashMap::with_max_entries(1, 0);

/// What a hook can tell of a packet. `None` is what it cannot.
pub trait Subject {
    /// The inode of the network namespace.
    fn namespace(&self) -> Option<u32>;

    /// The index of the interface that the packet came in by, or leaves by.
    fn interface(&self) -> Option<u32>;

    /// The local port.
    fn port(&self) -> Option<u16> {
        None
    }

    /// Packets in the socket's receive queue.
    fn queue(&self) -> Option<u32> {
        None
    }

    /// The process that reads the socket.
    fn process(&self) -> Option<u32> {
        None
    }

    /// The interface's name, with zeros after it.
    fn interface_name(&self) -> Option<[u64; 2]> {
        None
    }
}

/// The current task's process.
#[inline(always)]
pub fn current_process() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

/// Which packets a program measures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// Those that the filter chooses, told apart as asked for; all alike where nothing is asked for: for programs that cost
    /// more by what they hang on than by what they have at hand.
    Chosen,
}

/// Does a program's work as a code of its own for each case, so that the common one keeps nothing at hand for the other:
/// together they spilled registers some eighty times in four layers.
#[inline(always)]
pub fn apart(work: impl Fn(Which)) -> i32 {
    if set_outside(&BY) == 0 {
        work(Which::All);
    } else {
        // First, and nothing comes before it: the compiler would have both begin together.
        let _ = set_outside(&QUEUE);
        work(Which::Chosen);
    }
    0
}

/// Whether packets are chosen by something.
#[inline(always)]
pub fn asks_for(criterion: Criterion) -> bool {
    set_outside(&BY) & criterion.bit() != 0
}

/// Whether packets are told apart by something.
#[inline(always)]
pub fn tells_apart(by: Dimension) -> bool {
    set_outside(&BY) & by.bit() != 0
}

/// Whether all criteria choose a packet; `None` where that cannot be told.
#[inline(always)]
pub fn chooses(packet: &impl Subject) -> Option<bool> {
    let interface = || Some(Choice::interface(packet.namespace()?, packet.interface()?));
    let of = |criterion, number: Option<u32>| number.map(|number| Choice::of(criterion, number));
    let verdicts = [
        one(Criterion::Interface, interface),
        one(Criterion::Namespace, || of(Criterion::Namespace, packet.namespace())),
        one(Criterion::Port, || of(Criterion::Port, packet.port().map(u32::from))),
        one(Criterion::Process, || of(Criterion::Process, packet.process())),
        if asks_for(Criterion::Queue) {
            packet.queue().map(|length| length >= set_outside(&QUEUE))
        } else {
            Some(true)
        },
    ];
    all(verdicts)
}

/// Whether the workload that has a slot is chosen; `None` where that cannot be told.
#[inline(always)]
fn chooses_slot(slot: Slot) -> Option<bool> {
    if !asks_for(Criterion::Workload) {
        return Some(true);
    }
    match slot {
        _ if owner::by() == ownership::OFF => None,
        Slot::NODE => Some(false),
        Slot::OVERFLOW => None,
        slot => one(Criterion::Workload, || Some(Choice::of(Criterion::Workload, slot.0.into()))),
    }
}

/// Whether all criteria choose a packet of whoever has the slot, where [`chooses`] has said as much of the others.
#[inline(always)]
pub fn chooses_all(others: Option<bool>, slot: Slot) -> Option<bool> {
    all([others, chooses_slot(slot)])
}

#[inline(always)]
fn one(criterion: Criterion, choice: impl FnOnce() -> Option<Choice>) -> Option<bool> {
    if !asks_for(criterion) {
        return Some(true);
    }
    // SAFETY: the value is not looked at.
    choice().map(|choice| unsafe { CHOICES.get(&choice) }.is_some())
}

/// False where one says so, and else unknown where one does not know.
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
