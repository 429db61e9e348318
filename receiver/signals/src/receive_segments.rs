//! `receive_segments`: segments on the wire and bytes of the packets at the layer `transport`, which show the effect of GRO and the
//! received traffic.

use undercurrent_ebpf::abi::{
    latency::{IpVersion, Transport},
    segments::{self, Count},
};

use super::{
    Entry, attributes,
    slot_counter::{self, CountMap, SlotCounter},
    slot_words::entries,
};
use crate::{
    kernel::{constant::Constant, hooks, memory::PlannedMap},
    telemetry::{AttributeKey, Attributes, Descriptor},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    hooks: |_| vec![&hooks::TRANSPORT],
    maps: &[&SEGMENTS],
    constants: |on| vec![Constant::flag("signal.receive_segments", on.settings.receive_segments.enabled)],
    ..Entry::new(
        "receive_segments",
        "Segments on the wire and bytes of the packets that are measured at the layer `transport`",
        &[&RECEIVED_SEGMENTS.metric, &RECEIVED_BYTES.metric],
        |opening| slot_counter::open(opening, [&RECEIVED_SEGMENTS, &RECEIVED_BYTES]),
    )
};

const ATTRIBUTES: &[AttributeKey] = &[attributes::TRANSPORT, attributes::NETWORK];

static RECEIVED_SEGMENTS: SlotCounter = SlotCounter {
    metric: Descriptor::counter(
        "undercurrent.network.receive.segments",
        "{segment}",
        "Segments on the wire of the packets that are measured at the layer `transport`.",
        ATTRIBUTES,
    ),
    map: MAP,
    counts: |_| counts(Count::Segments),
    has_zeros: false,
};

static RECEIVED_BYTES: SlotCounter = SlotCounter {
    metric: Descriptor::counter(
        "undercurrent.network.receive.io",
        "By",
        "Bytes of the packets that are measured at the layer `transport`, from the header of the transport protocol on.",
        ATTRIBUTES,
    ),
    map: MAP,
    counts: |_| counts(Count::Bytes),
    has_zeros: false,
};

/// Counts by slot, shard and protocol.
static SEGMENTS: PlannedMap = PlannedMap::new("SEGMENTS", size_of::<[u64; segments::WORDS]>(), entries);

const MAP: CountMap = CountMap { map: &SEGMENTS, words: segments::WORDS, is_sharded: true, of_node: None };

fn counts(count: Count) -> Vec<(usize, Attributes)> {
    let protocols = [Transport::Tcp, Transport::Udp]
        .into_iter()
        .flat_map(|transport| IpVersion::ALL.map(|version| (transport, version)));
    let of_protocol = |(transport, version)| {
        let attributes = Attributes::new()
            .with(attributes::TRANSPORT.key, attributes::transport(transport))
            .with(attributes::NETWORK.key, attributes::network(version));
        (segments::index(count, transport, version), attributes)
    };
    protocols.map(of_protocol).collect()
}
