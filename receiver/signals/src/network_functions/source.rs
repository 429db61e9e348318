//! The source of samples: a timer, or the processor's cycle counter.

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use undercurrent_ebpf::abi::sample::SampleCells;

use super::price::{BusyTimes, Nanoseconds, Price, signed};
use crate::kernel::cpu_events::CpuEvent;

/// The state of one CPU at a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// The CPU.
    pub cpu: u32,
    /// Its counts.
    pub cells: SampleCells,
    /// The time since the last snapshot for which its event counted, in nanoseconds. A rounded time can be negative.
    pub counted: Nanoseconds,
    /// Nanoseconds for a unit of its event; `None` if it is unknown.
    pub price: Option<f64>,
}

/// A source of samples.
pub enum Source {
    /// A timer, with the time of the last snapshot.
    Clock(Instant),
    /// The cycle counter.
    Cycles(BusyTimes, BTreeMap<u32, Price>),
}

impl Source {
    /// Starts to observe an event.
    pub fn new(event: CpuEvent) -> Self {
        match event {
            CpuEvent::Cycles => Self::Cycles(BusyTimes::new(), BTreeMap::new()),
            CpuEvent::Clock | CpuEvent::Tick => Self::Clock(Instant::now()),
        }
    }

    /// Returns the event that samples.
    pub const fn event(&self) -> CpuEvent {
        match self {
            Self::Clock(_) => CpuEvent::Clock,
            Self::Cycles(..) => CpuEvent::Cycles,
        }
    }

    /// Returns the state of each CPU.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read.
    pub fn observe(&mut self, cells: &[(u32, SampleCells)]) -> io::Result<Vec<Observed>> {
        let observed: Vec<_> = match self {
            Self::Clock(last) => {
                let counted = signed(std::mem::replace(last, Instant::now()).elapsed());
                let of = |(cpu, cells): &(u32, SampleCells)| Observed {
                    cpu: *cpu,
                    cells: *cells,
                    counted,
                    price: Some(1.0),
                };
                cells.iter().map(of).collect()
            }
            Self::Cycles(times, prices) => {
                let busy = times.read()?;
                let of = |(cpu, cells): &(u32, SampleCells)| {
                    let busy = busy.get(cpu).copied();
                    let price = prices.entry(*cpu).or_insert_with(|| Price::since(cells.busy));
                    price.add(busy, cells.busy);
                    Observed { cpu: *cpu, cells: *cells, counted: busy.unwrap_or_default(), price: price.get() }
                };
                cells.iter().map(of).collect()
            }
        };
        Ok(observed)
    }

    /// Records that a CPU has a new event.
    pub fn restart(&mut self, cpu: u32) {
        if let Self::Cycles(_, prices) = self
            && let Some(price) = prices.get_mut(&cpu)
        {
            price.restart();
        }
    }
}

/// Returns a time in units of an event: by the price of a unit, or by the event's highest rate if the price is unknown.
pub fn units(event: CpuEvent, price: Option<f64>, time: Duration) -> u64 {
    let Some(price) = price else {
        let units = time.as_nanos() * u128::from(event.highest_rate()) / 1_000_000_000;
        return u64::try_from(units).unwrap_or(u64::MAX);
    };
    (time.as_nanos() as f64 / price).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_converted_by_the_price() {
        let period = Duration::from_secs(1) / 99;
        for event in [CpuEvent::Clock, CpuEvent::Cycles] {
            assert_eq!(units(event, None, period), event.first_period());
        }
        assert_eq!(units(CpuEvent::Clock, Some(1.0), period), 10_101_010);
        assert_eq!(units(CpuEvent::Cycles, Some(0.5), period), 20_202_020);
    }
}
