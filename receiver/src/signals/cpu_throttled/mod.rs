//! `cpu_throttled`: how long CPU quotas held tasks, from the kernel's own accounts by cgroup. It needs no hook.
//!
//! Unlike CPU time, a cgroup's throttled time is not that of the cgroups inside it too, but of its own quota alone. So each
//! stands once: with the workload whose cgroup it is, or, of slices and the like around workloads, with the node.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Caveat, Entry, OpenError, Opening, ReadError, Signal,
    growth::Sums,
    itself::{LOST, lost},
};
use crate::{
    kernel::host::Host,
    telemetry::{Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{CgroupId, CgroupPath, Hierarchy, NoAccounting, NoQuotas, Slot, UsageError, Workloads},
};

pub static ENTRY: Entry = Entry {
    name: "cpu_throttled",
    summary: "Time in which a cgroup's CPU quota held its tasks, of each workload that has one, and of slices for the node",
    metrics: &[&THROTTLED_TIME],
    enabled: |settings| settings.cpu_throttled.enabled,
    hooks: |_| Vec::new(),
    needs_every_hook: true,
    caveats: |_, kernel| caveats(kernel.host()),
    open,
};

static THROTTLED_TIME: Descriptor = Descriptor {
    name: "undercurrent.cpu.throttled.time",
    unit: "s",
    description: "Time in which the cgroup's own CPU quota held its tasks, over all CPUs.",
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
        Ok(hierarchy) => hierarchy.partial().into_iter().map(Caveat::Less).collect(),
        Err(nothing) => vec![Caveat::Nothing(nothing.to_string())],
    }
}

/// A cgroup at one reading: whose its quota is, and how long that held tasks since the cgroup was made; `None` where it
/// could not be read or, within, where a quota was never in force.
type Quota = (Slot, CgroupId, Option<Option<Duration>>);

struct CpuThrottled {
    hierarchy: Hierarchy,
    sums: Sums,
    /// Of each slot that has ever had a quota in force: since when it counts, and the time since then.
    totals: BTreeMap<Slot, (UnixNanos, Duration)>,
    /// Since when the sidecar counts.
    start: UnixNanos,
    /// Readings that failed, those of cgroups that were gone aside.
    unread: u64,
}

fn open(opening: &Opening<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let hierarchy = hierarchy(opening.kernel.host())?.clone();
    Ok(Box::new(CpuThrottled::new(hierarchy, opening.workloads, opening.start)))
}

impl CpuThrottled {
    /// Begins with what is there: only what is held from now on counts.
    fn new(hierarchy: Hierarchy, workloads: &Workloads, start: UnixNanos) -> Self {
        let (sums, totals) = (Sums::default(), BTreeMap::new());
        let mut signal = Self { hierarchy, sums, totals, start, unread: 0 };
        signal.advance(workloads);
        // The root's at least, where there is no workload yet.
        signal.sums.knows(workloads.newest());
        signal
    }

    /// Adds what was held since the reading before. What is held now counts once the kernel lets it go.
    fn advance(&mut self, workloads: &Workloads) {
        self.totals.retain(|slot, (since, _)| workloads.start(*slot) == Some(*since));
        let quotas = self.quotas(workloads);
        for (slot, cgroup, held) in &quotas {
            let (Some(Some(held)), Some(start)) = (held, workloads.start(*slot)) else { continue };
            let (_, total) = self.totals.entry(*slot).or_insert((start, Duration::ZERO));
            *total += self.sums.growth(*cgroup, *held).unwrap_or_default();
        }
        self.sums.keep(quotas.iter().map(|(_, cgroup, held)| (*cgroup, held.map(Option::unwrap_or_default))));
    }

    /// Every workload's quota, and those around workloads.
    fn quotas(&mut self, workloads: &Workloads) -> Vec<Quota> {
        let mut quotas = Vec::new();
        let (mut own, mut around) = (BTreeSet::new(), BTreeSet::new());
        for workload in workloads.iter() {
            quotas.push((workload.slot, workload.cgroup, self.held(workload.cgroup, &workload.path)));
            own.insert(&workload.path);
            around.extend((1..workload.path.names().count()).map(|count| workload.path.ancestor(count)));
        }
        for path in around.iter().filter(|path| !own.contains(path)) {
            // One that is gone by now held nobody lately.
            let Ok(id) = self.hierarchy.id(path) else { continue };
            quotas.push((Slot::NODE, id, self.held(id, path)));
        }
        quotas
    }

    fn held(&mut self, cgroup: CgroupId, path: &CgroupPath) -> Option<Option<Duration>> {
        match self.hierarchy.throttled(cgroup, path) {
            Ok(held) => Some(held),
            Err(UsageError::Gone) => None,
            Err(error) => {
                tracing::debug!("what the quota of {path} held is not known: {error}");
                self.unread += 1;
                None
            }
        }
    }
}

impl Signal for CpuThrottled {
    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        self.advance(workloads);
        for (slot, (start, held)) in &self.totals {
            let data = Data::Double(held.as_secs_f64());
            let point = Point { attributes: Attributes::new(), start: *start, data };
            readings.add(*slot, Metric { descriptor: &THROTTLED_TIME, points: vec![point] });
        }
        let unread = lost(ENTRY.name, "unread", Attributes::new(), self.unread, self.start);
        readings.add(Slot::NODE, Metric { descriptor: &LOST, points: vec![unread] });
        Ok(())
    }
}
