//! `latency`: how long packets take from their receive timestamp to each layer of the receive path.

use std::sync::atomic::{AtomicU64, Ordering};

use undercurrent_ebpf::abi::{
    histogram::SLOTS,
    latency::{LatencyCells, Layer, PATHS, Path},
    loss::{PACKET_LOSSES, PacketLoss},
};

use super::{
    Entry, OpenError, Opening, ReadError, Signal, attributes,
    itself::{LOST, lost},
};
use crate::{
    kernel::{
        hooks::{self, Hook},
        maps::{ByCpu, Words},
        memory::ByWorkload,
    },
    telemetry::{
        Attributes, Data, Descriptor, ExponentialHistogram, Instrument, Metric, Point, Readings, Scale, UnixNanos, View,
    },
    workloads::{Slot, Workloads},
};

pub static ENTRY: Entry = Entry {
    name: "latency",
    summary: "Time from a packet's receive timestamp to each layer of the receive path",
    metrics: &[&DURATION],
    enabled: |settings| settings.latency.enabled,
    hooks: |settings| settings.latency.layers.iter().map(hook).collect(),
    caveats: |_| Vec::new(),
    open,
};

static DURATION: Descriptor = Descriptor {
    name: "undercurrent.network.receive.duration",
    unit: "s",
    description: "Time from a packet's receive timestamp until it reached a layer, cumulative along the path.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[attributes::LAYER, attributes::TRANSPORT, attributes::NETWORK],
    view: View::Section,
};

const fn hook(layer: Layer) -> &'static Hook {
    match layer {
        Layer::Ip => &hooks::IP,
        Layer::Transport => &hooks::TRANSPORT,
        Layer::SocketEnqueued => &hooks::SOCKET_ENQUEUED,
        Layer::SocketRead => &hooks::SOCKET_READ,
    }
}

struct Latency {
    cells: ByCpu<LatencyCells>,
    /// What belongs to workloads, where it is told apart.
    owned: Option<(Words, ByWorkload)>,
    scale: Scale,
    start: UnixNanos,
    /// Paths that a hook serves; the others have no points, not even of zero.
    served: [bool; PATHS],
}

fn open(opening: &Opening<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let layout = opening.kernel.by_workload();
    let owned = layout.map(|layout| Ok::<_, OpenError>((opening.kernel.words("WORKLOAD_LATENCY")?, layout)));
    Ok(Box::new(Latency {
        cells: opening.kernel.by_cpu("LATENCY")?,
        owned: owned.transpose()?,
        scale: opening.settings.latency.scale,
        start: opening.start,
        served: Path::ALL.map(|path| opening.kernel.serves(hook(path.layer))),
    }))
}

/// What all CPUs recorded of one path.
#[derive(Clone, Copy)]
struct Total {
    slots: [u64; SLOTS],
    sum: u64,
    lost: [u64; PACKET_LOSSES],
}

impl Latency {
    fn totals(&self) -> Vec<Total> {
        let mut totals = vec![Total { slots: [0; SLOTS], sum: 0, lost: [0; PACKET_LOSSES] }; PATHS];
        self.cells.for_each(|_, cells| {
            for (index, total) in totals.iter_mut().enumerate() {
                let histogram = &cells.histograms[index];
                total.slots.iter_mut().zip(histogram.slots).for_each(|(total, slot)| *total += slot);
                total.sum += histogram.sum;
                total.lost.iter_mut().zip(cells.lost[index]).for_each(|(total, lost)| *total += lost);
            }
        });
        totals
    }
}

/// What all shards recorded of one workload's path: the sum, and the slots after it.
fn owned(words: &[AtomicU64], layout: &ByWorkload, path: usize) -> (u64, Vec<u64>) {
    let mut totals = vec![0_u64; layout.histogram];
    for shard in words.chunks_exact(PATHS * layout.histogram) {
        let histogram = &shard[path * layout.histogram..][..layout.histogram];
        totals.iter_mut().zip(histogram).for_each(|(total, word)| *total += word.load(Ordering::Relaxed));
    }
    (totals.remove(0), totals)
}

impl Latency {
    /// The words of a slot.
    fn slot(&self, slot: Slot) -> Option<(&[AtomicU64], &ByWorkload)> {
        let (words, layout) = self.owned.as_ref()?;
        let first = usize::from(slot.0) * layout.slot();
        Some((words.slice(first..first + layout.slot()), layout))
    }

    fn of_workload(&self, slot: Slot, start: UnixNanos) -> Metric {
        let points = self.slot(slot).into_iter().flat_map(|(words, layout)| {
            let served = Path::ALL.into_iter().zip(self.served).filter(|(_, served)| *served);
            served.filter_map(move |(path, _)| {
                let (sum, slots) = owned(words, layout, path.index());
                let histogram = ExponentialHistogram::from_slots(self.scale, &slots, sum);
                let point = || Point { attributes: describe(path), start, data: Data::Histogram(histogram.clone()) };
                (histogram.count() > 0).then(point)
            })
        });
        Metric { descriptor: &DURATION, points: points.collect() }
    }
}

impl Signal for Latency {
    fn forget(&mut self, slot: Slot) {
        if let Some((words, _)) = self.slot(slot) {
            words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        for (slot, start) in workloads.slots() {
            readings.add(slot, self.of_workload(slot, start));
        }
        let (mut durations, mut losses) = (Vec::new(), Vec::new());
        let served = Path::ALL.into_iter().zip(self.totals()).zip(self.served).filter(|(_, served)| *served);
        for ((path, total), _) in served {
            let attributes = describe(path);
            let slots = &total.slots[..self.scale.slots()];
            for (reason, count) in PacketLoss::ALL.map(reason).into_iter().zip(total.lost) {
                losses.push(lost(ENTRY.name, reason, attributes.clone(), count, self.start));
            }
            // Those stand in the topmost bucket, whose width says nothing of them.
            let above = slots.last().copied().unwrap_or(0);
            losses.push(lost(ENTRY.name, "above_range", attributes.clone(), above, self.start));
            let histogram = ExponentialHistogram::from_slots(self.scale, slots, total.sum);
            if histogram.count() > 0 {
                durations.push(Point { attributes, start: self.start, data: Data::Histogram(histogram) });
            }
        }
        readings.add(Slot::NODE, Metric { descriptor: &DURATION, points: durations });
        readings.add(Slot::NODE, Metric { descriptor: &LOST, points: losses });
        Ok(())
    }
}

fn describe(path: Path) -> Attributes {
    let attributes = Attributes::new().with(attributes::LAYER.key, attributes::layer(path.layer));
    let attributes = match path.transport {
        Some(transport) => attributes.with(attributes::TRANSPORT.key, attributes::transport(transport)),
        None => attributes,
    };
    attributes.with(attributes::NETWORK.key, attributes::network(path.network))
}

const fn reason(loss: PacketLoss) -> &'static str {
    match loss {
        PacketLoss::NoStamp => "no_stamp",
        PacketLoss::TransmitStamp => "transmit_stamp",
        PacketLoss::Negative => "negative",
    }
}
