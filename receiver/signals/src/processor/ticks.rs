//! The period of each CPU's timer, which reads the counters of tasks that never switch.
//!
//! A tick wakes an idle CPU, so it has one a second. A CPU that runs one workload for long has ten, which bounds the error of an interval.

use std::collections::BTreeMap;

use undercurrent_ebpf::abi::processor::{IDLE, ProcessorCells};

use crate::kernel::cpu_events::CpuEvent;

/// The period of a timer on a CPU that runs one workload for long, in nanoseconds.
const SHORT: u64 = 100_000_000;

/// The periods of all CPUs.
#[derive(Default)]
pub struct Ticks(BTreeMap<u32, Cpu>);

struct Cpu {
    /// The cgroups of the running task at the last snapshot.
    running: u64,
    period: u64,
}

impl Ticks {
    /// Returns the periods to set. `cells` are the states of the CPUs that are online. `here` is the CPU of the caller: it runs the caller,
    /// so its state says nothing about other times.
    pub fn choose<'a>(
        &mut self,
        cells: impl IntoIterator<Item = (u32, &'a ProcessorCells)>,
        here: Option<u32>,
    ) -> Vec<(u32, u64)> {
        let mut changes = Vec::new();
        for (number, cells) in cells.into_iter().filter(|(number, _)| Some(*number) != here) {
            let running = cells.running;
            let first = CpuEvent::Tick.first_period();
            let cpu = self.0.entry(number).or_insert(Cpu { running: IDLE, period: first });
            let is_same = std::mem::replace(&mut cpu.running, running) == running;
            let period = match running {
                IDLE => first,
                _ if is_same => SHORT,
                _ => cpu.period,
            };
            if std::mem::replace(&mut cpu.period, period) != period {
                changes.push((number, period));
            }
        }
        changes
    }

    /// Returns the period of a CPU's timer.
    pub fn period(&self, number: u32) -> u64 {
        self.0.get(&number).map_or(CpuEvent::Tick.first_period(), |cpu| cpu.period)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    #[test]
    fn a_cpu_that_runs_one_workload_for_long_has_more_ticks() {
        let mut ticks = Ticks::default();
        let mut at = |running, here| {
            let cells = ProcessorCells { running, ..ProcessorCells::new_zeroed() };
            ticks.choose([(3, &cells)], here)
        };
        let (one, other, short, long) = (4096, 8192, vec![(3, SHORT)], vec![(3, CpuEvent::Tick.first_period())]);
        let none = Vec::new();
        assert_eq!([at(IDLE, None), at(one, None), at(other, None)], [none.clone(), none.clone(), none.clone()]);
        assert_eq!([at(other, None), at(one, None)], [short.clone(), none.clone()]);
        assert_eq!([at(IDLE, None), at(one, None), at(one, None)], [long.clone(), none.clone(), short]);
        assert_eq!(
            [at(IDLE, Some(3)), at(IDLE, None), at(one, Some(3)), at(one, Some(3))],
            [none.clone(), long, none.clone(), none]
        );
        assert_eq!(ticks.period(3), CpuEvent::Tick.first_period());
    }
}
