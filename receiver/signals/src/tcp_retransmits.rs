//! `tcp_retransmits`: TCP segments that the host retransmitted, by the workload of the socket.

use std::{iter, sync::atomic::Ordering};

use undercurrent_ebpf::abi::{latency::IpVersion, retransmits};

use super::{Entry, HooksNeeded, OpenContext, OpenError, ReadError, Signal, attributes};
use crate::{
    kernel::{
        constant::Constant,
        hooks::{Hook, tracepoint, whole},
        maps::Words,
        memory::PlannedMap,
    },
    telemetry::{Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{Slot, Workloads},
};

pub static ENTRY: Entry = Entry {
    name: "tcp_retransmits",
    summary: "Retransmitted TCP segments, by the workload of the socket; segments without a workload count for the node",
    metrics: &[&SEGMENTS],
    hooks: |_| vec![&HOOK],
    maps: &[&RETRANSMITS],
    constants: |on| vec![Constant::flag("signal.tcp_retransmits", on.settings.tcp_retransmits.enabled)],
    losses: |_| Vec::new(),
    hooks_needed: HooksNeeded::All,
    tasks: &[],
    caveats: |_, _| Vec::new(),
    open,
};

static SEGMENTS: Descriptor = Descriptor {
    name: "undercurrent.tcp.retransmits",
    unit: "{segment}",
    description: "Retransmitted TCP segments.",
    instrument: Instrument::Counter,
    attributes: &[attributes::NETWORK],
    view: View::Section,
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
static RETRANSMITS: PlannedMap = PlannedMap::new("RETRANSMITS", size_of::<u64>(), |sizing| {
    // The node has a slot even if measurements are not attributed to workloads.
    sizing.slots().max(1) * retransmits::WORDS
});

struct TcpRetransmits {
    /// The map `RETRANSMITS`.
    words: Words,
    start: UnixNanos,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    Ok(Box::new(TcpRetransmits { words: opening.kernel.words(&RETRANSMITS)?, start: opening.start }))
}

impl TcpRetransmits {
    /// Returns the segments of a slot, indexed by [`IpVersion`].
    fn counts(&self, slot: Slot) -> [u64; retransmits::WORDS] {
        IpVersion::ALL.map(|version| {
            let word = retransmits::index(slot, version) as usize;
            self.words.slice(word..word + 1)[0].load(Ordering::Relaxed)
        })
    }
}

impl Signal for TcpRetransmits {
    fn forget(&mut self, slot: Slot) {
        let first = retransmits::index(slot, IpVersion::ALL[0]) as usize;
        let words = self.words.slice(first..first + retransmits::WORDS);
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        for (slot, start) in iter::once((Slot::NODE, self.start)).chain(workloads.slots()) {
            // Workloads without retransmissions have no points. The node has points with zero too.
            let counts = IpVersion::ALL.into_iter().zip(self.counts(slot));
            let said = counts.filter(|(_, count)| slot == Slot::NODE || *count > 0);
            let point = |(network, count)| Point {
                attributes: Attributes::new().with(attributes::NETWORK.key, attributes::network(network)),
                start,
                data: Data::count(count),
            };
            readings.add(slot, Metric { descriptor: &SEGMENTS, points: said.map(point).collect() });
        }
        Ok(())
    }
}
