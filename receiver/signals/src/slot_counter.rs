//! Counters by workload: a signal declares a metric, a map, and the attributes of each word.

use std::iter;

use crate::{
    OpenContext, OpenError, ReadError, Signal,
    kernel::{Kernel, KernelError, memory::PlannedMap},
    slot_words::SlotWords,
    telemetry::{Attributes, Data, Descriptor, Metric, Point, Readings, UnixNanos},
    workloads::{Slot, Workloads},
};

/// The declaration of a counter.
pub struct SlotCounter {
    /// The metric.
    pub metric: Descriptor,
    /// The map of its counts.
    pub map: CountMap,
    /// Returns the words of a slot that the metric counts, by their index, with the attributes of their points. Words with
    /// equal attributes share a point.
    pub counts: fn(&Kernel) -> Vec<(usize, Attributes)>,
    /// True if the node has points with zero. Workloads have none.
    pub has_zeros: bool,
}

/// A map of counts.
pub struct CountMap {
    /// The map: words by slot, then by shard if it has shards.
    pub map: &'static PlannedMap,
    /// The number of words of a slot, or of a shard.
    pub words: usize,
    /// True if a slot has the shards of a workload.
    pub is_sharded: bool,
    /// The counts of the node by CPU. `None` if the node has a slot in `map`.
    pub of_node: Option<&'static PlannedMap>,
}

/// Opens a signal that consists of counters.
///
/// # Errors
/// If a map cannot be mapped into memory.
pub fn open(
    opening: &OpenContext<'_>,
    counters: impl IntoIterator<Item = &'static SlotCounter>,
) -> Result<Box<dyn Signal>, OpenError> {
    let counters = counters.into_iter().map(|counter| OpenCounter::open(opening.kernel, counter));
    Ok(Box::new(Counters { counters: counters.collect::<Result<_, _>>()?, start: opening.start }))
}

struct Counters {
    counters: Vec<OpenCounter>,
    start: UnixNanos,
}

impl Signal for Counters {
    fn forget(&mut self, slot: Slot) {
        self.counters.iter().filter_map(|counter| counter.words.as_ref()).for_each(|words| words.clear(slot));
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        for (slot, start) in iter::once((Slot::NODE, self.start)).chain(workloads.slots()) {
            self.counters.iter().for_each(|counter| readings.add(slot, counter.read(slot, start)));
        }
        Ok(())
    }
}

/// A counter with its maps in memory.
struct OpenCounter {
    metric: &'static Descriptor,
    /// `None` if the map has only workloads, and measurements are not attributed to workloads.
    words: Option<SlotWords>,
    /// `None` if the node has a slot in `words`.
    of_node: Option<SlotWords>,
    /// The indices that share each point.
    points: Vec<(Attributes, Vec<usize>)>,
    has_zeros: bool,
}

impl OpenCounter {
    fn open(kernel: &Kernel, counter: &'static SlotCounter) -> Result<Self, KernelError> {
        let CountMap { map, words, is_sharded, of_node } = counter.map;
        let has_slots = of_node.is_none() || kernel.by_workload();
        let open = || {
            if is_sharded { SlotWords::open(kernel, map, words) } else { SlotWords::unsharded(kernel, map, words) }
        };
        let mut points: Vec<(Attributes, Vec<usize>)> = Vec::new();
        for (index, attributes) in (counter.counts)(kernel) {
            match points.iter_mut().find(|(known, _)| *known == attributes) {
                Some((_, indices)) => indices.push(index),
                None => points.push((attributes, vec![index])),
            }
        }
        Ok(Self {
            metric: &counter.metric,
            words: has_slots.then(open).transpose()?,
            of_node: of_node.map(|map| SlotWords::by_cpu(kernel, map, words)).transpose()?,
            points,
            has_zeros: counter.has_zeros,
        })
    }

    /// Returns the points of a slot.
    fn read(&self, slot: Slot, start: UnixNanos) -> Metric {
        let of_node = self.of_node.as_ref().filter(|_| slot == Slot::NODE);
        let counts = of_node.or(self.words.as_ref()).map_or_else(Vec::new, |words| words.sums(slot));
        let has_zeros = self.has_zeros && slot == Slot::NODE;
        let point = |(attributes, indices): &(Attributes, Vec<usize>)| {
            let count = indices.iter().filter_map(|index| counts.get(*index)).sum::<u64>();
            let (attributes, data) = (attributes.clone(), Data::count(count));
            (count > 0 || has_zeros).then_some(Point { attributes, start, data })
        };
        Metric { descriptor: self.metric, points: self.points.iter().filter_map(point).collect() }
    }
}
