//! `tcp_retransmits`: segments that TCP sent again, by whose socket it was.

use std::{iter, sync::atomic::Ordering};

use undercurrent_ebpf::abi::{latency::IpVersion, retransmits};

use super::{Entry, OpenError, Opening, ReadError, Signal, attributes};
use crate::{
    kernel::{hooks, maps::Words},
    telemetry::{Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{Slot, Workloads},
};

pub static ENTRY: Entry = Entry {
    name: "tcp_retransmits",
    summary: "Segments that TCP sent again since they were not acknowledged, of each workload and of the node for the rest",
    metrics: &[&RETRANSMITS],
    enabled: |settings| settings.tcp_retransmits.enabled,
    hooks: |_| vec![&hooks::TCP_RETRANSMIT],
    needs_every_hook: true,
    caveats: |_, _| Vec::new(),
    open,
};

static RETRANSMITS: Descriptor = Descriptor {
    name: "undercurrent.tcp.retransmits",
    unit: "{segment}",
    description: "Segments that TCP sent again.",
    instrument: Instrument::Counter,
    attributes: &[attributes::NETWORK],
    view: View::Section,
};

struct TcpRetransmits {
    /// The map `RETRANSMITS`.
    words: Words,
    start: UnixNanos,
}

fn open(opening: &Opening<'_>) -> Result<Box<dyn Signal>, OpenError> {
    Ok(Box::new(TcpRetransmits { words: opening.kernel.words("RETRANSMITS")?, start: opening.start }))
}

impl TcpRetransmits {
    /// Segments of a slot, by [`IpVersion`].
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
            // Most workloads have none; of the node it is said.
            let counts = IpVersion::ALL.into_iter().zip(self.counts(slot));
            let said = counts.filter(|(_, count)| slot == Slot::NODE || *count > 0);
            let point = |(network, count)| Point {
                attributes: Attributes::new().with(attributes::NETWORK.key, attributes::network(network)),
                start,
                data: Data::Integer(i64::try_from(count).unwrap_or(i64::MAX)),
            };
            readings.add(slot, Metric { descriptor: &RETRANSMITS, points: said.map(point).collect() });
        }
        Ok(())
    }
}
