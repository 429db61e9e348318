//! `network_drops`: packets that the kernel dropped, by drop reason.

mod layers;

use std::{collections::BTreeMap, iter, sync::atomic::Ordering};

use undercurrent_ebpf::abi::drops::{COUNTS, DropCells};

use self::layers::{LAYERS, layer};
use super::{Entry, HooksNeeded, OpenContext, OpenError, ReadError, Signal};
use crate::{
    kernel::{
        constant::Constant,
        drops::Reasons,
        hooks,
        maps::{ByCpu, Words},
        memory::PlannedMap,
    },
    telemetry::{AttributeKey, Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{Slot, Workloads},
};

pub static ENTRY: Entry = Entry {
    name: "network_drops",
    summary: "Packets that the kernel dropped, by drop reason, and by workload if the packet has a socket",
    metrics: &[&PACKETS],
    hooks: |_| vec![&hooks::DROP],
    maps: &[&DROPS, &WORKLOAD_DROPS],
    constants: |on| vec![Constant::flag("signal.network_drops", on.settings.network_drops.enabled)],
    losses: |_| Vec::new(),
    hooks_needed: HooksNeeded::All,
    tasks: &[],
    caveats: |_, _| Vec::new(),
    open,
};

const LAYER: &str = "undercurrent.drop.layer";
const REASON: &str = "undercurrent.drop.reason";

static PACKETS: Descriptor = Descriptor {
    name: "undercurrent.network.drops",
    unit: "{packet}",
    description: "Packets that the kernel dropped, by drop reason.",
    instrument: Instrument::Counter,
    attributes: &[
        AttributeKey::listed(LAYER, LAYERS),
        AttributeKey::open(REASON, "the kernel's drop reason, such as no_socket"),
    ],
    view: View::Section,
};

/// Packets by CPU and drop reason.
static DROPS: PlannedMap = PlannedMap::new("DROPS", size_of::<u64>(), |sizing| sizing.cpus * COUNTS);
/// Packets by slot and drop reason.
static WORKLOAD_DROPS: PlannedMap =
    PlannedMap::new("WORKLOAD_DROPS", size_of::<u64>(), |sizing| sizing.slots() * COUNTS);

struct NetworkDrops {
    cells: ByCpu<DropCells>,
    /// The map `WORKLOAD_DROPS`. `None` if measurements are not attributed to workloads.
    owned: Option<Words>,
    reasons: Reasons,
    start: UnixNanos,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let owned = opening.kernel.by_workload().then(|| opening.kernel.words(&WORKLOAD_DROPS));
    Ok(Box::new(NetworkDrops {
        cells: opening.kernel.by_cpu(&DROPS)?,
        owned: owned.transpose()?,
        reasons: opening.kernel.drop_reasons().clone(),
        start: opening.start,
    }))
}

impl NetworkDrops {
    /// Returns the sum over all CPUs.
    fn of_node(&self) -> [u64; COUNTS] {
        let mut counts = [0; COUNTS];
        self.cells.for_each(|_, cells| counts.iter_mut().zip(cells.counts).for_each(|(sum, count)| *sum += count));
        counts
    }

    /// Returns a point for each drop reason with a nonzero count.
    fn points(&self, start: UnixNanos, counts: impl Iterator<Item = u64>) -> Vec<Point> {
        let mut by_reason: BTreeMap<&str, u64> = BTreeMap::new();
        for (place, count) in counts.enumerate().filter(|(_, count)| *count > 0) {
            if let Some(reason) = self.reasons.at(place) {
                *by_reason.entry(reason).or_default() += count;
            }
        }
        let point = |(reason, count): (&str, u64)| {
            let attributes = Attributes::new().with(LAYER, layer(reason));
            let data = Data::count(count);
            Point { attributes: attributes.with(REASON, reason.to_owned()), start, data }
        };
        by_reason.into_iter().map(point).collect()
    }
}

fn words(slot: Slot) -> std::ops::Range<usize> {
    let first = usize::from(slot.0) * COUNTS;
    first..first + COUNTS
}

impl Signal for NetworkDrops {
    fn forget(&mut self, slot: Slot) {
        for count in self.owned.iter().flat_map(|owned| owned.slice(words(slot))) {
            count.store(0, Ordering::Relaxed);
        }
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let node = self.points(self.start, self.of_node().into_iter());
        let of_workloads = self.owned.iter().flat_map(|owned| {
            workloads.slots().map(|(slot, start)| {
                let counts = owned.slice(words(slot)).iter().map(|count| count.load(Ordering::Relaxed));
                (slot, self.points(start, counts))
            })
        });
        for (slot, points) in iter::once((Slot::NODE, node)).chain(of_workloads) {
            readings.add(slot, Metric { descriptor: &PACKETS, points });
        }
        Ok(())
    }
}
