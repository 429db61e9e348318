//! `receive_driver`: time from the NIC's receive timestamp to the kernel's receive timestamp.

use std::sync::PoisonError;

use undercurrent_ebpf::abi::{
    driver::{DRIVER_LOSSES, DriverCells, DriverLoss, NICS, NicCells},
    histogram::{BUCKETS, HistogramCell},
};

use super::{
    Caveat, Entry, LossConditions, OpenContext, OpenError, ReadError, Signal, attributes,
    lost::{LOST, lost},
};
use crate::{
    kernel::{
        Kernel, hooks,
        maps::ByCpu,
        memory::PlannedMap,
        nics::{Nic, Nics},
    },
    telemetry::{
        AttributeKey, Attributes, Data, Descriptor, ExponentialHistogram, Instrument, Metric, Point, Readings, Scale,
        UnixNanos, View,
    },
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    hooks: |_| vec![&hooks::DRIVER],
    maps: &[&DRIVER],
    losses: |on| losses(on).into_iter().map(reason).collect(),
    caveats: |_, kernel| caveats(kernel),
    ..Entry::new(
        "receive_driver",
        "Time from a NIC's receive timestamp to the kernel's receive timestamp",
        &[&DURATION, &ERROR],
        open,
    )
};

const INTERFACE: AttributeKey = AttributeKey::open(attributes::INTERFACE.key, "the name of the NIC");

static DURATION: Descriptor = Descriptor {
    name: "undercurrent.network.receive.driver.duration",
    unit: "s",
    description: "Time from the NIC's receive timestamp to the kernel's receive timestamp.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[INTERFACE],
    view: View::Section,
};

static ERROR: Descriptor = Descriptor {
    name: "undercurrent.network.receive.driver.clock.error",
    unit: "s",
    description: "Upper bound of the error when the NIC's clock is converted to the wall clock.",
    instrument: Instrument::Gauge,
    attributes: &[INTERFACE],
    view: View::Hidden,
};

/// Durations by CPU and NIC.
pub static DRIVER: PlannedMap = PlannedMap::new("DRIVER", size_of::<NicCells>(), |sizing| sizing.cpus * NICS);

struct ReceiveDriver {
    cells: ByCpu<DriverCells>,
    nics: Nics,
    scale: Scale,
    start: UnixNanos,
    losses: LossConditions,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    Ok(Box::new(ReceiveDriver {
        cells: opening.kernel.by_cpu(&DRIVER)?,
        nics: opening.kernel.nics(),
        scale: opening.packets.scale,
        start: opening.start,
        losses: opening.losses,
    }))
}

impl Signal for ReceiveDriver {
    fn read(&mut self, _: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let nics = self.nics.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if nics.is_empty() {
            return Ok(());
        }
        let totals = self.totals();
        let (mut durations, mut errors, mut losses) = (Vec::new(), Vec::new(), Vec::new());
        for (nic, total) in nics.iter().zip(&totals) {
            let attributes = Attributes::new().with(INTERFACE.key, attributes::interface(&nic.name));
            losses.extend(self.losses(&attributes, total));
            errors.extend(self.error(&attributes, nic));
            let slots = &total.duration.buckets[..self.scale.buckets()];
            let histogram = ExponentialHistogram::from_slots(self.scale, slots, total.duration.sum);
            if histogram.count() > 0 {
                durations.push(Point { attributes, start: self.start, data: Data::Histogram(histogram) });
            }
        }
        for (descriptor, points) in [(&DURATION, durations), (&ERROR, errors), (&LOST, losses)] {
            readings.add(Slot::NODE, Metric { descriptor, points });
        }
        Ok(())
    }
}

impl ReceiveDriver {
    /// Returns the sums over all CPUs, by NIC index.
    fn totals(&self) -> [NicCells; NICS] {
        let none = NicCells { duration: HistogramCell { sum: 0, buckets: [0; BUCKETS] }, lost: [0; DRIVER_LOSSES] };
        let mut totals = [none; NICS];
        self.cells.for_each(|_, cells| {
            for (total, cell) in totals.iter_mut().zip(&cells.nics) {
                total.duration.sum += cell.duration.sum;
                total.duration.buckets.iter_mut().zip(cell.duration.buckets).for_each(|(total, slot)| *total += slot);
                total.lost.iter_mut().zip(cell.lost).for_each(|(total, lost)| *total += lost);
            }
        });
        totals
    }

    fn losses(&self, of: &Attributes, total: &NicCells) -> impl Iterator<Item = Point> {
        let point = |loss| lost(ENTRY.name, reason(loss), of.clone(), total.lost[loss as usize], self.start);
        losses(&self.losses).into_iter().map(point)
    }

    fn error(&self, of: &Attributes, nic: &Nic) -> Option<Point> {
        Some(Point { attributes: of.clone(), start: self.start, data: Data::Double(nic.error?) })
    }
}

/// Returns the losses that can occur.
fn losses(on: &LossConditions) -> Vec<DriverLoss> {
    let can_occur = |loss: &DriverLoss| *loss != DriverLoss::NotFilterable || on.filtered;
    DriverLoss::ALL.into_iter().filter(can_occur).collect()
}

/// Returns the value of `undercurrent.reason`.
pub const fn reason(loss: DriverLoss) -> &'static str {
    match loss {
        DriverLoss::NoTimestamp => "no_timestamp",
        DriverLoss::Negative => "negative",
        DriverLoss::NoClock => "no_clock",
        DriverLoss::TimestampOverwritten => "timestamp_overwritten",
        DriverLoss::NotFilterable => "not_filterable",
    }
}

fn caveats(kernel: &Kernel) -> Vec<Caveat> {
    let found = kernel.found_nics();
    let less = found.problems.iter().cloned();
    if !found.usable.is_empty() {
        return less.map(Caveat::Partial).collect();
    }
    if !found.problems.is_empty() {
        return less.map(Caveat::Unavailable).collect();
    }
    let nothing = "no NIC of this network namespace has receive timestamps enabled (`ptp4l` or `hwstamp_ctl -r 1` enable them); \
                   the sidecar rescans once a minute";
    vec![Caveat::Idle(nothing.to_owned())]
}
