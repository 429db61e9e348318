//! The energy of each meter since its first reading.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::points::{self, HARDWARE, PLATFORM};
use crate::{
    sysfs::{Driver, Meters, Object, Quantity},
    telemetry::{Descriptor, Metric, Microjoules, Point, UnixNanos, Watts},
};

/// The time between two readings of a power sensor, at most. Most drivers measure a new value every second.
const SENSOR: Duration = Duration::from_secs(1);
/// The shortest time between two readings of a counter, for invalid ranges.
const SHORTEST: Duration = Duration::from_millis(100);

/// The meters of the node.
#[derive(Debug, Default)]
pub struct Zones {
    zones: BTreeMap<String, Zone>,
    /// The time of the last reading.
    read: Option<Instant>,
}

/// A meter with its energy.
#[derive(Debug)]
pub struct Zone {
    pub driver: Driver,
    pub object: Object,
    last: Quantity,
    at: Instant,
    total: Microjoules,
    start: UnixNanos,
    /// Growth since [`Zones::take`]; `None` before the second reading.
    grown: Option<Microjoules>,
    /// Energy below a microjoule, in units of 10^-15 J.
    rest: u128,
}

impl Zones {
    /// Adds a reading of every meter. A meter that is not in the reading is removed. A meter with an unreadable value keeps its
    /// state: its next value contains the growth.
    pub fn update(&mut self, meters: &Meters, now: Instant, time: UnixNanos) {
        self.zones.retain(|id, _| meters.meters.iter().any(|meter| meter.id == *id));
        for meter in &meters.meters {
            let Ok(quantity) = meter.reading else { continue };
            match self.zones.get_mut(&meter.id) {
                Some(zone) => zone.advance(quantity, now, time),
                None => {
                    let zone = Zone::new(meter.driver, meter.object, quantity, now, time);
                    self.zones.insert(meter.id.clone(), zone);
                }
            }
        }
        self.read = Some(now);
    }

    /// Returns the latest time of the next reading; `None` without meters. Until then no counter wraps around twice.
    pub fn due(&self) -> Option<Instant> {
        let period = self.zones.values().map(Zone::period).min()?;
        Some(self.read? + period)
    }

    /// Returns every meter.
    pub fn iter(&self) -> impl Iterator<Item = &Zone> {
        self.zones.values()
    }

    /// Returns the metrics of the meters in the last reading.
    pub fn metrics(&self) -> [Metric; 2] {
        let of = |descriptor: &'static Descriptor| {
            let current = self.zones.iter().filter(|(_, zone)| Some(zone.at) == self.read);
            let own = current.filter(|(_, zone)| std::ptr::eq(zone.descriptor(), descriptor));
            Metric { descriptor, points: own.map(|(id, zone)| zone.point(id)).collect() }
        };
        [of(&HARDWARE), of(&PLATFORM)]
    }

    /// Resets the growth of every meter.
    pub fn take(&mut self) {
        self.zones.values_mut().for_each(|zone| zone.grown = zone.grown.map(|_| Microjoules::default()));
    }
}

impl Zone {
    const fn new(driver: Driver, object: Object, last: Quantity, at: Instant, start: UnixNanos) -> Self {
        Self { driver, object, last, at, total: Microjoules(0), start, grown: None, rest: 0 }
    }

    /// Returns the growth since [`Zones::take`]; `None` after a new start.
    pub const fn grown(&self) -> Option<Microjoules> {
        self.grown
    }

    fn advance(&mut self, now: Quantity, at: Instant, time: UnixNanos) {
        let elapsed = at.saturating_duration_since(self.at);
        let Some(growth) = self.growth(now, elapsed) else {
            *self = Self::new(self.driver, self.object, now, at, time);
            return;
        };
        self.total += growth;
        self.grown = Some(self.grown.unwrap_or_default() + growth);
        (self.last, self.at) = (now, at);
    }

    /// Returns the energy since the last reading. `None` if it is unknown: the counter was reset, or it may have wrapped around
    /// more than once.
    fn growth(&mut self, now: Quantity, elapsed: Duration) -> Option<Microjoules> {
        match (self.last, now) {
            (Quantity::Energy(before, _), Quantity::Energy(after, None)) => {
                Some(Microjoules(after.0.checked_sub(before.0)?))
            }
            (Quantity::Energy(before, _), Quantity::Energy(after, Some(range))) => {
                let most = self.highest().over(elapsed);
                let wrapped =
                    if after < before { range.0.saturating_sub(before.0) + after.0 } else { after.0 - before.0 };
                (most < range && (after >= before || wrapped <= most.0)).then_some(Microjoules(wrapped))
            }
            (Quantity::Power(before), Quantity::Power(after)) => Some(self.integral(before, after, elapsed)),
            _ => None,
        }
    }

    /// Returns the energy of a power that changed linearly.
    fn integral(&mut self, before: Watts, after: Watts, elapsed: Duration) -> Microjoules {
        const MICROJOULE: u128 = 2_000_000_000;
        let sum = u128::from(before.microwatts()) + u128::from(after.microwatts());
        let energy = sum * elapsed.as_nanos() + self.rest;
        self.rest = energy % MICROJOULE;
        Microjoules(u64::try_from(energy / MICROJOULE).unwrap_or(u64::MAX))
    }

    /// Returns a power that the object cannot exceed. A counter that decreased by more than this power allows was reset.
    const fn highest(&self) -> Watts {
        match self.object {
            Object::Platform => Watts::new(10_000),
            _ => Watts::new(2_000),
        }
    }

    /// Returns the longest time between two readings.
    fn period(&self) -> Duration {
        match self.last {
            Quantity::Energy(_, Some(range)) => {
                let time = u128::from(range.0) * 1_000_000_000 / u128::from(self.highest().microwatts()) / 2;
                Duration::from_nanos(u64::try_from(time).unwrap_or(u64::MAX)).max(SHORTEST)
            }
            Quantity::Energy(_, None) => Duration::MAX,
            Quantity::Power(_) => SENSOR,
        }
    }

    const fn descriptor(&self) -> &'static Descriptor {
        match self.object {
            Object::Platform => &PLATFORM,
            _ => &HARDWARE,
        }
    }

    fn point(&self, id: &str) -> Point {
        let kind = match self.object {
            Object::Package | Object::Core | Object::Uncore => Some("cpu"),
            Object::Dram => Some("memory"),
            Object::Platform => None,
        };
        points::measured(id, kind, self.start, self.total)
    }
}

#[cfg(test)]
mod tests;
