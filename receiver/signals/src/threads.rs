//! `threads`: numbers of threads, read from the kernel's cgroups. It needs no hook.
//!
//! A cgroup includes its descendants. A workload counts without the workloads below it, and the rest counts for the node.

use std::collections::{BTreeMap, HashMap};

use super::{
    Caveat, Entry, OpenContext, OpenError, READ_FAILED, ReadError, Signal,
    lost::{LOST, lost},
};
use crate::{
    kernel::host::Host,
    telemetry::{Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{CgroupId, CgroupPath, Files, NoAccounting, Slot, UsageError, Workloads},
};

pub static ENTRY: Entry = Entry {
    losses: |_| vec![READ_FAILED],
    caveats: |_, kernel| caveats(kernel.host()),
    ..Entry::new(
        "threads",
        "Number of threads of each workload without nested workloads; threads of no workload, and those of the kernel, count for the node",
        &[&THREADS],
        open,
    )
};

static THREADS: Descriptor = Descriptor {
    name: "undercurrent.threads",
    unit: "{thread}",
    description: "Number of threads, without those of nested workloads.",
    instrument: Instrument::UpDownCounter,
    attributes: &[],
    view: View::Section,
};

fn caveats(host: &Host) -> Vec<Caveat> {
    match &host.hierarchy {
        Some(hierarchy) => hierarchy.partial().into_iter().map(Caveat::Partial).collect(),
        None => vec![Caveat::Unavailable(NoAccounting::NotMounted.to_string())],
    }
}

struct Threads {
    files: Files,
    /// Start time of the node's measurement.
    start: UnixNanos,
    /// Failed readings, except readings of removed cgroups.
    unread: u64,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let files = opening.files.ok_or(NoAccounting::NotMounted)?.clone();
    Ok(Box::new(Threads { files, start: opening.start, unread: 0 }))
}

impl Threads {
    /// Returns the number of threads of each slot with a workload, without nested workloads.
    fn own(&mut self, workloads: &Workloads) -> Result<BTreeMap<Slot, u64>, ReadError> {
        let cgroups: Vec<(CgroupId, CgroupPath)> =
            workloads.iter().map(|workload| (workload.cgroup, workload.path.clone())).collect();
        let read = self.files.threads(&cgroups).map_err(|source| ReadError { what: "cgroups", source })?;
        let mut whole = HashMap::new();
        for ((_, path), counted) in cgroups.iter().zip(read) {
            match counted {
                Ok(threads) => drop(whole.insert(path, threads)),
                Err(UsageError::Gone) => {}
                Err(error) => {
                    tracing::debug!("cannot count the threads of {path}: {error}");
                    self.unread += 1;
                }
            }
        }
        let own = without_nested(&whole);
        let mut by_slot = BTreeMap::new();
        // The node has the threads of cgroups beyond the limit of workloads, with all others.
        for workload in workloads.iter().filter(|workload| workload.slot != Slot::NODE) {
            if let Some(threads) = own.get(&workload.path) {
                *by_slot.entry(workload.slot).or_default() += threads;
            }
        }
        Ok(by_slot)
    }
}

/// Returns the number of threads of each cgroup without those of the cgroups below it. A cgroup that grows between two readings counts none
/// rather than less.
fn without_nested<'a>(whole: &HashMap<&'a CgroupPath, u64>) -> HashMap<&'a CgroupPath, u64> {
    let mut own = whole.clone();
    for (path, threads) in whole {
        let above = (0..path.names().count()).rev().map(|count| path.ancestor(count));
        let mut counted = above.filter(|above| above != *path && whole.contains_key(above));
        if let Some(outer) = counted.next().and_then(|outer| own.get_mut(&outer)) {
            *outer = outer.saturating_sub(*threads);
        }
    }
    own
}

impl Signal for Threads {
    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let own = self.own(workloads)?;
        let all = self.files.all_threads().map_err(|source| ReadError { what: "/proc/loadavg", source })?;
        let rest = all.saturating_sub(own.values().sum());
        let of_workloads = own.into_iter().filter_map(|(slot, count)| Some((slot, workloads.start(slot)?, count)));
        for (slot, start, count) in of_workloads.chain([(Slot::NODE, self.start, rest)]) {
            let point = Point { attributes: Attributes::new(), start, data: Data::count(count) };
            readings.add(slot, Metric { descriptor: &THREADS, points: vec![point] });
        }
        let unread = lost(ENTRY.name, READ_FAILED, Attributes::new(), self.unread, self.start);
        readings.add(Slot::NODE, Metric { descriptor: &LOST, points: vec![unread] });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_nested_workloads_count_once() {
        let paths = ["/", "/a", "/a/b", "/a/b/c", "/ab", "/a/x/y"].map(|path| CgroupPath::new(path.as_bytes()));
        let whole: HashMap<_, _> = paths.iter().zip([100, 50, 20, 5, 7, 3]).collect();
        let own = without_nested(&whole);
        // The cgroup between `/a` and `/a/x/y` is no workload.
        let expected = [43, 27, 15, 5, 7, 3];
        assert_eq!(paths.each_ref().map(|path| own[path]), expected);
    }
}
