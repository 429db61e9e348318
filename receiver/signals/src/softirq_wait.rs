//! `softirq_wait`: time from the raise of a network softirq to its run.

use undercurrent_ebpf::abi::{
    histogram::BUCKETS,
    softirq::{Softirq, SoftirqCells},
};

use super::{
    Entry, OpenContext, OpenError, ReadError, SOFTIRQS, Signal, attributes,
    lost::{LOST, lost},
};
use crate::{
    kernel::{constant::Constant, hooks, maps::ByCpu},
    telemetry::{
        AttributeKey, Attributes, Data, Descriptor, ExponentialHistogram, Instrument, Metric, Point, Readings, Scale,
        UnixNanos, View,
    },
    workloads::{Slot, Workloads},
};

pub static ENTRY: Entry = Entry {
    hooks: |_| vec![&hooks::SOFTIRQ_RAISE, &hooks::SOFTIRQ_ENTRY],
    maps: &[&SOFTIRQS],
    constants: |on| vec![Constant::flag("signal.softirq_wait", on.settings.softirq_wait.enabled.unwrap_or_default())],
    losses: |_| vec![MISSING_RAISE],
    is_detail: true,
    ..Entry::new("softirq_wait", "Time from the raise of a network softirq to its run", &[&WAIT], open)
};

/// The reason for softirqs whose raise was not recorded.
const MISSING_RAISE: &str = "missing_raise";
const SOFTIRQ: &str = "undercurrent.softirq";

static WAIT: Descriptor = Descriptor {
    name: "undercurrent.softirq.wait.duration",
    unit: "s",
    description: "Time from the first raise of a network softirq to its run.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[AttributeKey::derived(SOFTIRQ, || Softirq::ALL.map(attributes::softirq).to_vec())],
    view: View::Section,
};

struct SoftirqWait {
    cells: ByCpu<SoftirqCells>,
    scale: Scale,
    start: UnixNanos,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    Ok(Box::new(SoftirqWait { cells: opening.softirqs()?, scale: opening.packets.scale, start: opening.start }))
}

impl Signal for SoftirqWait {
    fn read(&mut self, _: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let mut totals = Softirq::ALL.map(|softirq| (softirq, [0_u64; BUCKETS], 0_u64, 0_u64));
        self.cells.for_each(|_, cells| {
            for (softirq, slots, sum, unseen) in &mut totals {
                let wait = &cells.wait[*softirq as usize];
                slots.iter_mut().zip(wait.buckets).for_each(|(total, slot)| *total += slot);
                *sum += wait.sum;
                *unseen += cells.unseen_raises[*softirq as usize];
            }
        });
        let (mut waits, mut losses) = (Vec::new(), Vec::new());
        for (softirq, slots, sum, unseen) in totals {
            let attributes = Attributes::new().with(SOFTIRQ, attributes::softirq(softirq));
            losses.push(lost(ENTRY.name, MISSING_RAISE, attributes.clone(), unseen, self.start));
            let histogram = ExponentialHistogram::from_slots(self.scale, &slots[..self.scale.buckets()], sum);
            if histogram.count() > 0 {
                waits.push(Point { attributes, start: self.start, data: Data::Histogram(histogram) });
            }
        }
        readings.add(Slot::NODE, Metric { descriptor: &WAIT, points: waits });
        readings.add(Slot::NODE, Metric { descriptor: &LOST, points: losses });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use undercurrent_ebpf::abi::softirq::SoftirqState;
    use zerocopy::FromZeros as _;

    fn state(raised: u64, entered: u64) -> SoftirqState {
        SoftirqState { raised, entered, ..SoftirqState::new_zeroed() }
    }

    #[test]
    fn a_run_waits_from_the_raise_since_the_previous_run() {
        assert_eq!(state(20, 10).wait_until(25), Some(5));
        assert_eq!(state(20, 10).wait_until(20), Some(0));
        assert_eq!(state(10, 20).wait_until(25), None);
        assert_eq!(state(20, 20).wait_until(25), None);
    }

    #[test]
    fn a_raise_after_the_run_started_belongs_to_the_next_run() {
        assert_eq!(state(26, 10).wait_until(25), None);
        assert_eq!(state(26, 25).wait_until(40), Some(14));
    }
}
