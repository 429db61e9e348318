//! CPUs that were offline. The kernel stops the events of a CPU for good when it goes offline.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use undercurrent_ebpf::abi::processor::ProcessorCells;

/// The time without a tick after which a CPU that is online has lost its ticks.
const SILENT: Duration = Duration::from_secs(5);

/// Finds CPUs that were offline by the state of their programs.
#[derive(Default)]
pub struct Returned(BTreeMap<u32, Seen>);

/// The state of a CPU at the last call.
struct Seen {
    ticks: u64,
    /// The time of the last call at which `ticks` had grown.
    ticked: Instant,
    /// Readings of stopped and of missing events.
    unread: u64,
}

/// The CPUs with events to open again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// CPUs without counters.
    pub counters: Vec<u32>,
    /// CPUs without ticks.
    pub ticks: Vec<u32>,
}

impl Returned {
    /// Returns the CPUs that lost events since the last call. `cells` are the states of the CPUs that are online.
    pub fn find<'a>(&mut self, cells: impl IntoIterator<Item = (u32, &'a ProcessorCells)>, now: Instant) -> Lost {
        let mut lost = Lost::default();
        for (cpu, cells) in cells {
            let unread = cells.stopped + cells.failed;
            let seen = self.0.entry(cpu).or_insert(Seen { ticks: cells.ticks, ticked: now, unread: 0 });
            let is_silent = seen.ticks == cells.ticks && now.saturating_duration_since(seen.ticked) >= SILENT;
            if is_silent {
                lost.ticks.push(cpu);
            }
            if is_silent || unread > seen.unread {
                lost.counters.push(cpu);
            }
            if is_silent || seen.ticks != cells.ticks {
                seen.ticked = now;
            }
            (seen.ticks, seen.unread) = (cells.ticks, unread);
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    fn cells(ticks: u64, stopped: u64, failed: u64) -> ProcessorCells {
        ProcessorCells { ticks, stopped, failed, ..ProcessorCells::new_zeroed() }
    }

    /// Returns the lost events at each call; the calls have the times in seconds.
    fn lost(calls: &[(u64, ProcessorCells)]) -> Vec<Lost> {
        let (mut returned, start) = (Returned::default(), Instant::now());
        let at = |(seconds, cells): &(u64, ProcessorCells)| {
            returned.find([(3, cells)], start + Duration::from_secs(*seconds))
        };
        calls.iter().map(at).collect()
    }

    #[test]
    fn ticking_cpus_keep_their_events() {
        let calls = [0, 1, 7, 30].map(|second| (second, cells(second, 0, 0)));
        assert!(lost(&calls).iter().all(|lost| *lost == Lost::default()));
    }

    #[test]
    fn stopped_and_missing_counters_are_opened_once() {
        let counters = |cpus: &[u32]| Lost { counters: cpus.to_vec(), ticks: Vec::new() };
        let calls = [(0, cells(1, 0, 0)), (1, cells(2, 4, 0)), (2, cells(3, 4, 0)), (3, cells(4, 4, 9))];
        assert_eq!(lost(&calls), [counters(&[]), counters(&[3]), counters(&[]), counters(&[3])]);
    }

    #[test]
    fn a_silent_cpu_has_lost_all_events() {
        let all = Lost { counters: vec![3], ticks: vec![3] };
        let calls = [(0, cells(1, 0, 0)), (4, cells(1, 0, 0)), (5, cells(1, 0, 0)), (6, cells(1, 0, 0))];
        assert_eq!(lost(&calls), [Lost::default(), Lost::default(), all, Lost::default()]);
    }
}
