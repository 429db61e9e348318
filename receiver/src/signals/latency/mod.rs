//! `latency`: how long packets take from their receive timestamp to each layer of the receive path.

mod owned;

use undercurrent_ebpf::abi::{
    histogram::SLOTS,
    latency::{LatencyCells, Layer, PATHS, Path},
    loss::{PACKET_LOSSES, PacketLoss},
};

pub use self::owned::Owned;
use super::{
    Entry, OpenError, Opening, ReadError, Signal, attributes,
    itself::{LOST, lost},
};
use crate::{
    kernel::{
        hooks::{self, Hook},
        maps::ByCpu,
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

/// The signal.
pub struct Latency {
    /// What the node has, that of workloads included.
    pub cells: ByCpu<LatencyCells>,
    /// What belongs to workloads, where it is told apart.
    pub owned: Option<Owned>,
    /// Of all histograms.
    pub scale: Scale,
    /// Since when cells count.
    pub start: UnixNanos,
    /// Paths that a hook serves; the others have no points, not even of zero.
    pub served: [bool; PATHS],
}

fn open(opening: &Opening<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let scale = opening.settings.latency.scale;
    let owned = |layout| Ok::<_, OpenError>(Owned::new(opening.kernel.words("WORKLOAD_LATENCY")?, layout, scale));
    Ok(Box::new(Latency {
        cells: opening.kernel.by_cpu("LATENCY")?,
        owned: opening.kernel.by_workload().map(owned).transpose()?,
        scale,
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

impl Latency {
    /// Adds what every one of these slots has, which count from their starts, and then the node.
    pub fn add_to(&mut self, readings: &mut Readings, slots: impl Iterator<Item = (Slot, UnixNanos)>) {
        if let Some(owned) = &mut self.owned {
            for (slot, start) in slots {
                let points = owned.read(slot, self.served).filter(|(_, histogram)| histogram.count() > 0);
                let point = |(path, histogram): (usize, _)| Point {
                    attributes: describe(Path::ALL[path]),
                    start,
                    data: Data::Histogram(histogram),
                };
                readings.add(slot, Metric { descriptor: &DURATION, points: points.map(point).collect() });
            }
        }
        self.add_node_to(readings);
    }

    fn add_node_to(&self, readings: &mut Readings) {
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
    }
}

impl Signal for Latency {
    fn forget(&mut self, slot: Slot) {
        if let Some(owned) = &self.owned {
            owned.clear(slot);
        }
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        self.add_to(readings, workloads.slots());
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
