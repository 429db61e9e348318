//! `cpu_throttled`: time that CPU quotas throttled tasks, read from the kernel's cgroup statistics. It needs no hook.
//!
//! Unlike CPU time, the throttled time of a cgroup does not include its descendants. It counts only the cgroup's own
//! quota. Therefore each cgroup counts once: for its workload, or, if it only contains workloads (slices), for the
//! node.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Caveat, Entry, OpenContext, OpenError, READ_FAILED, ReadError, Signal,
    growth::Sums,
    lost::{LOST, lost},
};
use crate::{
    kernel::host::Host,
    telemetry::{Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{CgroupId, CgroupPath, Files, Hierarchy, NoAccounting, NoQuotas, Slot, UsageError, Workloads},
};

pub static ENTRY: Entry = Entry {
    losses: |_| vec![READ_FAILED],
    caveats: |_, kernel| caveats(kernel.host()),
    ..Entry::new(
        "cpu_throttled",
        "Time that CPU quotas throttled tasks, by workload; quotas of slices count for the node",
        &[&THROTTLED_TIME],
        open,
    )
};

static THROTTLED_TIME: Descriptor = Descriptor {
    name: "undercurrent.cpu.throttled.time",
    unit: "s",
    description: "Time that the cgroup's own CPU quota throttled its tasks, summed over all CPUs.",
    instrument: Instrument::Counter,
    attributes: &[],
    view: View::Section,
};

fn hierarchy(host: &Host) -> Result<&Hierarchy, NoQuotas> {
    let hierarchy = host.hierarchy.as_ref().ok_or(NoQuotas::NotMounted(NoAccounting::NotMounted))?;
    hierarchy.quotas().map(|()| hierarchy)
}

fn caveats(host: &Host) -> Vec<Caveat> {
    match hierarchy(host) {
        Ok(hierarchy) => hierarchy.partial().into_iter().map(Caveat::Partial).collect(),
        Err(nothing) => vec![Caveat::Unavailable(nothing.to_string())],
    }
}

/// The slot and throttled time of a cgroup at one reading, since the creation of the cgroup. The outer `Option` is
/// `None` if the file could not be read, the inner one if the cgroup never had a quota.
type Quota = (Slot, CgroupId, Option<Option<Duration>>);

struct CpuThrottled {
    files: Files,
    sums: Sums,
    /// The start time and throttled time of each slot that has ever had a quota.
    totals: BTreeMap<Slot, (UnixNanos, Duration)>,
    /// Start time of the node's measurement.
    start: UnixNanos,
    /// Failed readings, except readings of removed cgroups.
    unread: u64,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    hierarchy(opening.kernel.host())?;
    let files = opening.files.ok_or(NoQuotas::NotMounted(NoAccounting::NotMounted))?.clone();
    Ok(Box::new(CpuThrottled::new(files, opening.workloads, opening.start)?))
}

impl CpuThrottled {
    /// Starts with the current readings as the baseline.
    fn new(files: Files, workloads: &Workloads, start: UnixNanos) -> Result<Self, ReadError> {
        let (sums, totals) = (Sums::default(), BTreeMap::new());
        let mut signal = Self { files, sums, totals, start, unread: 0 };
        signal.advance(workloads)?;
        // The root cgroup is the fallback if no workload exists yet.
        signal.sums.knows(workloads.newest());
        Ok(signal)
    }

    /// Adds the growth since the previous reading. Ongoing throttling counts after the kernel has unthrottled the
    /// cgroup.
    fn advance(&mut self, workloads: &Workloads) -> Result<(), ReadError> {
        self.totals.retain(|slot, (since, _)| workloads.start(*slot) == Some(*since));
        let quotas = self.quotas(workloads)?;
        for (slot, cgroup, held) in &quotas {
            let (Some(Some(held)), Some(start)) = (held, workloads.start(*slot)) else { continue };
            let (_, total) = self.totals.entry(*slot).or_insert((start, Duration::ZERO));
            *total += self.sums.growth(*cgroup, *held).unwrap_or_default();
        }
        self.sums.keep(quotas.iter().map(|(_, cgroup, held)| (*cgroup, held.map(Option::unwrap_or_default))));
        Ok(())
    }

    /// Returns the quotas of all workloads and of the cgroups that contain workloads.
    fn quotas(&mut self, workloads: &Workloads) -> Result<Vec<Quota>, ReadError> {
        let own: BTreeSet<&CgroupPath> = workloads.iter().map(|workload| &workload.path).collect();
        let above =
            |path: &&CgroupPath| (1..path.names().count()).map(|count| path.ancestor(count)).collect::<Vec<_>>();
        let around: BTreeSet<CgroupPath> = own.iter().flat_map(above).filter(|path| !own.contains(path)).collect();
        let of_workloads = workloads.iter().map(|workload| (workload.slot, Some(workload.cgroup), &workload.path));
        let all: Vec<_> = of_workloads.chain(around.iter().map(|path| (Slot::NODE, None, path))).collect();
        let cgroups: Vec<_> = all.iter().map(|(_, id, path)| (*id, *path)).collect();
        let read = self.files.throttled(&cgroups).map_err(|source| ReadError { what: "cgroups", source })?;
        let mut quotas = Vec::with_capacity(all.len());
        for ((slot, id, path), read) in all.into_iter().zip(read) {
            // A containing cgroup that no longer exists has not throttled tasks recently.
            let Some(id) = id.or_else(|| Some(read.as_ref().ok()?.0)) else { continue };
            quotas.push((slot, id, self.held(path, read.map(|(_, held)| held))));
        }
        Ok(quotas)
    }

    fn held(&mut self, path: &CgroupPath, read: Result<Option<Duration>, UsageError>) -> Option<Option<Duration>> {
        match read {
            Ok(held) => Some(held),
            Err(UsageError::Gone) => None,
            Err(error) => {
                tracing::debug!("cannot read the throttled time of {path}: {error}");
                self.unread += 1;
                None
            }
        }
    }
}

impl Signal for CpuThrottled {
    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        self.advance(workloads)?;
        for (slot, (start, held)) in &self.totals {
            let data = Data::Double(held.as_secs_f64());
            let point = Point { attributes: Attributes::new(), start: *start, data };
            readings.add(*slot, Metric { descriptor: &THROTTLED_TIME, points: vec![point] });
        }
        let unread = lost(ENTRY.name, READ_FAILED, Attributes::new(), self.unread, self.start);
        readings.add(Slot::NODE, Metric { descriptor: &LOST, points: vec![unread] });
        Ok(())
    }
}
