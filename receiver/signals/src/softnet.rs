//! `softnet`: the kernel's counters of each CPU's receive softirq, and the waits of its thread for softirqs.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Entry, OpenContext, OpenError, ReadError, Signal, attributes};
use crate::{
    ksoftirqd,
    reader::SoftirqThreads,
    softnet_stat::{self, Row},
    telemetry::{AttributeKey, Attributes, Data, Descriptor, Metric, Point, Readings, UnixNanos},
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    ..Entry::new(
        "softnet",
        "Counters of the receive softirq on each CPU: packets, drops, exhausted budgets, and waits of its thread",
        &[&PROCESSED, &DROPPED, &SQUEEZED, &WAIT],
        open,
    )
};

const ATTRIBUTES: &[AttributeKey] = &[attributes::cpu(false)];

static PROCESSED: Descriptor = Descriptor::counter(
    "undercurrent.softnet.processed",
    "{packet}",
    "Packets that the receive softirq processed.",
    ATTRIBUTES,
);
static DROPPED: Descriptor = Descriptor::counter(
    "undercurrent.softnet.dropped",
    "{packet}",
    "Packets dropped because the backlog queue of the CPU was full.",
    ATTRIBUTES,
);
static SQUEEZED: Descriptor = Descriptor::counter(
    "undercurrent.softnet.squeezed",
    "{run}",
    "Runs of the receive softirq that ended with packets left, because the budget or the time was exhausted.",
    ATTRIBUTES,
);

static WAIT: Descriptor = Descriptor::counter(
    "undercurrent.softnet.thread.wait.time",
    "s",
    "Time that ksoftirqd, which continues the softirqs of an overloaded CPU, was ready and waited for its CPU.",
    ATTRIBUTES,
);

/// The counters of [`Row`], in its order.
const COUNTERS: [&Descriptor; 3] = [&PROCESSED, &DROPPED, &SQUEEZED];

/// The settings of `softnet`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if the counters are read.
    pub enabled: bool,
    /// True if every CPU has points of its own (`cpu.logical_number`). They show a single overloaded CPU.
    pub per_cpu: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { enabled: true, per_cpu: true }
    }
}

struct Softnet {
    per_cpu: bool,
    start: UnixNanos,
    last: BTreeMap<u32, Row>,
    totals: BTreeMap<u32, [u64; 3]>,
    /// The kernel's threads for softirqs.
    threads: Option<SoftirqThreads>,
    /// Their waits at the start, by CPU.
    waits: BTreeMap<u32, Duration>,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let rows = read()?;
    let softnet = Softnet::new(rows, opening.settings.softnet.per_cpu, opening.start);
    let threads = opening.softirq_threads;
    // Without threads, for example in another pid namespace, there are no points.
    let waits: BTreeMap<u32, Duration> = threads.waits().unwrap_or_default().into_iter().collect();
    let threads = (!waits.is_empty()).then(|| threads.clone());
    Ok(Box::new(Softnet { threads, waits, ..softnet }))
}

fn read() -> Result<Vec<Row>, ReadError> {
    softnet_stat::read().map_err(|source| ReadError { what: softnet_stat::SOURCE, source })
}

impl Softnet {
    fn new(rows: Vec<Row>, per_cpu: bool, start: UnixNanos) -> Self {
        let totals = rows.iter().map(|row| (row.cpu, [0; 3])).collect();
        let last = rows.into_iter().map(|row| (row.cpu, row)).collect();
        Self { per_cpu, start, last, totals, threads: None, waits: BTreeMap::new() }
    }

    /// Adds the growth since the previous rows. The kernel's counters have 32 bits and wrap.
    fn advance(&mut self, rows: Vec<Row>) {
        for row in rows {
            // A CPU that comes online later counts from zero.
            let last = self.last.insert(row.cpu, row).map_or([0; 3], |last| last.counts);
            let totals = self.totals.entry(row.cpu).or_default();
            for (total, (now, before)) in totals.iter_mut().zip(row.counts.into_iter().zip(last)) {
                *total += u64::from(now.wrapping_sub(before));
            }
        }
    }

    fn points(&self, counter: usize) -> Vec<Point> {
        self.points_of(self.totals.iter().map(|(cpu, totals)| (*cpu, totals[counter])), Data::count)
    }

    /// Returns the points of the waits since the start; none if the threads are unknown.
    fn waits(&self) -> Result<Vec<Point>, ReadError> {
        let Some(threads) = &self.threads else { return Ok(Vec::new()) };
        let waits = threads.waits().map_err(|source| ReadError { what: ksoftirqd::SOURCE, source })?;
        let grown = |(cpu, wait): (u32, Duration)| {
            let grown = wait.saturating_sub(*self.waits.get(&cpu)?);
            Some((cpu, u64::try_from(grown.as_nanos()).unwrap_or(u64::MAX)))
        };
        let waits = waits.into_iter().filter_map(grown);
        Ok(self.points_of(waits, |nanoseconds| Data::Double(nanoseconds as f64 / 1e9)))
    }

    /// Returns a point for each CPU, or one for all.
    fn points_of(&self, amounts: impl Iterator<Item = (u32, u64)>, data: impl Fn(u64) -> Data) -> Vec<Point> {
        let point = |attributes, amount| Point { attributes, start: self.start, data: data(amount) };
        if self.per_cpu {
            amounts.map(|(cpu, amount)| point(Attributes::new().with(attributes::CPU, cpu), amount)).collect()
        } else {
            vec![point(Attributes::new(), amounts.map(|(_, amount)| amount).sum())]
        }
    }
}

impl Signal for Softnet {
    fn read(&mut self, _: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        self.advance(read()?);
        for (counter, descriptor) in COUNTERS.into_iter().enumerate() {
            readings.add(Slot::NODE, Metric { descriptor, points: self.points(counter) });
        }
        readings.add(Slot::NODE, Metric { descriptor: &WAIT, points: self.waits()? });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cpu: u32, processed: u32) -> Row {
        Row { cpu, counts: [processed, 0, 0] }
    }

    #[test]
    fn counters_handle_wraps_and_new_cpus() {
        let mut softnet = Softnet::new(vec![row(0, u32::MAX - 1)], true, UnixNanos(0));
        softnet.advance(vec![row(0, 3), row(2, 7)]);
        softnet.advance(vec![row(0, 10), row(2, 7)]);
        let counts: Vec<_> = softnet.points(0).into_iter().map(|point| point.data).collect();
        assert_eq!(counts, [Data::Integer(12), Data::Integer(7)]);
    }

    #[test]
    fn without_per_cpu_there_is_one_point() {
        let mut softnet = Softnet::new(vec![row(0, 0), row(1, 0)], false, UnixNanos(0));
        softnet.advance(vec![row(0, 1), row(1, 2)]);
        assert_eq!(softnet.points(0).into_iter().map(|point| point.data).collect::<Vec<_>>(), [Data::Integer(3)]);
    }
}
