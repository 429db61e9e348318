//! `tcp_retransmits`: TCP segments that the host retransmitted, by the workload of the socket.

use undercurrent_ebpf::abi::{latency::IpVersion, retransmits};

use super::{
    Entry, attributes,
    slot_counter::{self, CountMap, SlotCounter},
    slot_words::unsharded,
};
use crate::{
    kernel::{
        constant::Constant,
        hooks::{Hook, tracepoint, whole},
        memory::PlannedMap,
    },
    telemetry::{Attributes, Descriptor},
    workloads::Slot,
};

pub static ENTRY: Entry = Entry {
    hooks: |_| vec![&HOOK],
    maps: &[&RETRANSMITS],
    constants: |on| vec![Constant::flag("signal.tcp_retransmits", on.settings.tcp_retransmits.enabled)],
    ..Entry::new(
        "tcp_retransmits",
        "Retransmitted TCP segments, by the workload of the socket; segments without a workload count for the node",
        &[&SEGMENTS.metric],
        |opening| slot_counter::open(opening, [&SEGMENTS]),
    )
};

static SEGMENTS: SlotCounter = SlotCounter {
    metric: Descriptor::counter(
        "undercurrent.tcp.retransmits",
        "{segment}",
        "Retransmitted TCP segments.",
        &[attributes::NETWORK],
    ),
    map: CountMap { map: &RETRANSMITS, words: retransmits::WORDS, is_sharded: false, of_node: None },
    counts: |_| {
        let count = |version| {
            let attributes = Attributes::new().with(attributes::NETWORK.key, attributes::network(version));
            (retransmits::index(Slot::NODE, version) as usize, attributes)
        };
        IpVersion::ALL.map(count).into()
    },
    has_zeros: true,
};

/// The hook at retransmissions.
static HOOK: Hook = Hook {
    name: "tcp_retransmit",
    reads_timestamps: false,
    sees_traffic: false,
    within: None,
    alternates: &[whole("tracepoint", &[tracepoint("tcp_retransmit_skb"), tracepoint("tcp_retransmit_synack")])],
};

/// Segments by slot and IP version.
static RETRANSMITS: PlannedMap = PlannedMap::new("RETRANSMITS", size_of::<u64>(), unsharded::<{ retransmits::WORDS }>);
