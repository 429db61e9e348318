//! `receive_segments`: segments on the wire and bytes of the packets at the layer `transport`, which show the effect of GRO and the
//! received traffic.

use std::iter;

use undercurrent_ebpf::abi::{
    latency::{IpVersion, Transport},
    segments::{self, Count},
};

use super::{
    Entry, HooksNeeded, OpenContext, OpenError, ReadError, Signal, attributes,
    slot_words::{SlotWords, entries},
};
use crate::{
    kernel::{constant::Constant, hooks, memory::PlannedMap},
    telemetry::{Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    name: "receive_segments",
    summary: "Segments on the wire and bytes of the packets that are measured at the layer `transport`",
    metrics: &[&SEGMENTS_RECEIVED, &BYTES_RECEIVED],
    hooks: |_| vec![&hooks::TRANSPORT],
    maps: &[&SEGMENTS],
    constants: |on| vec![Constant::flag("signal.receive_segments", on.settings.receive_segments.enabled)],
    losses: |_| Vec::new(),
    hooks_needed: HooksNeeded::All,
    tasks: &[],
    caveats: |_, _| Vec::new(),
    open,
};

static SEGMENTS_RECEIVED: Descriptor = Descriptor {
    name: "undercurrent.network.receive.segments",
    unit: "{segment}",
    description: "Segments on the wire of the packets that are measured at the layer `transport`.",
    instrument: Instrument::Counter,
    attributes: &[attributes::TRANSPORT, attributes::NETWORK],
    view: View::Section,
};

static BYTES_RECEIVED: Descriptor = Descriptor {
    name: "undercurrent.network.receive.io",
    unit: "By",
    description: "Bytes of the packets that are measured at the layer `transport`, from the header of the transport protocol on.",
    ..SEGMENTS_RECEIVED
};

/// Counts by slot, shard and protocol.
static SEGMENTS: PlannedMap = PlannedMap::new("SEGMENTS", size_of::<[u64; segments::WORDS]>(), entries);

struct ReceiveSegments {
    /// The map `SEGMENTS`.
    words: SlotWords,
    start: UnixNanos,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let words = SlotWords::open(opening.kernel, &SEGMENTS, segments::WORDS)?;
    Ok(Box::new(ReceiveSegments { words, start: opening.start }))
}

impl ReceiveSegments {
    /// Returns the points of a slot for the protocols with packets.
    fn points(&self, count: Count, slot: Slot, start: UnixNanos) -> Vec<Point> {
        let kinds = [Transport::Tcp, Transport::Udp]
            .into_iter()
            .flat_map(|transport| IpVersion::ALL.map(|version| (transport, version)));
        let point = |(transport, version)| {
            let sum = self.words.sum(slot, segments::index(count, transport, version) as usize);
            let attributes = Attributes::new()
                .with(attributes::TRANSPORT.key, attributes::transport(transport))
                .with(attributes::NETWORK.key, attributes::network(version));
            let data = Data::count(sum);
            (sum > 0).then_some(Point { attributes, start, data })
        };
        kinds.filter_map(point).collect()
    }
}

impl Signal for ReceiveSegments {
    fn forget(&mut self, slot: Slot) {
        self.words.clear(slot);
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        for (slot, start) in iter::once((Slot::NODE, self.start)).chain(workloads.slots()) {
            for (descriptor, count) in [(&SEGMENTS_RECEIVED, Count::Segments), (&BYTES_RECEIVED, Count::Bytes)] {
                readings.add(slot, Metric { descriptor, points: self.points(count, slot, start) });
            }
        }
        Ok(())
    }
}
