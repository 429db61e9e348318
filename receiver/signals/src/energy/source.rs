//! The sources of a domain's energy: meters, or a model for nodes without meters.

use std::time::Duration;

use super::{
    points::{Domain, Origin},
    zones::Zones,
};
use crate::{
    options::PowerRange,
    sysfs::{Driver, Object},
    telemetry::{Microjoules, Watts},
};

/// The time since the previous division.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// The length.
    pub length: Duration,
    /// CPU time of the whole node, weighted for hyper-threads.
    pub used: Duration,
    /// The number of CPUs.
    pub cpus: usize,
}

/// A source of energy.
pub trait Source {
    /// Returns the kind of the source.
    fn origin(&self) -> Origin;

    /// Returns true if the source measures a domain on this node.
    fn measures(&self, domain: Domain, zones: &Zones) -> bool;

    /// Returns the energy of a domain in an interval; `None` if it is unknown.
    fn energy(&self, domain: Domain, zones: &Zones, interval: &Interval) -> Option<Microjoules>;

    /// Returns the idle power of a domain, if the source knows it.
    fn idle(&self, domain: Domain) -> Option<Watts>;
}

/// The meters of a driver.
pub struct Metered(pub Driver);

impl Metered {
    fn object(domain: Domain) -> Object {
        match domain {
            Domain::Cpu => Object::Package,
            Domain::Memory => Object::Dram,
        }
    }
}

impl Source for Metered {
    fn origin(&self) -> Origin {
        match self.0 {
            Driver::Rapl => Origin::Rapl,
            Driver::Hwmon => Origin::Hwmon,
        }
    }

    fn measures(&self, domain: Domain, zones: &Zones) -> bool {
        zones.iter().any(|zone| zone.driver == self.0 && zone.object == Self::object(domain))
    }

    /// Returns the sum of the zones with a known growth: a zone that appeared in the interval counts from its next reading.
    fn energy(&self, domain: Domain, zones: &Zones, _: &Interval) -> Option<Microjoules> {
        let own = zones.iter().filter(|zone| zone.driver == self.0 && zone.object == Self::object(domain));
        own.filter_map(|zone| zone.grown()).reduce(|sum, growth| sum + growth)
    }

    fn idle(&self, _: Domain) -> Option<Watts> {
        None
    }
}

/// A power that is linear in the CPU use.
pub struct Model(pub PowerRange);

impl Source for Model {
    fn origin(&self) -> Origin {
        Origin::Model
    }

    fn measures(&self, domain: Domain, _: &Zones) -> bool {
        domain == Domain::Cpu
    }

    fn energy(&self, domain: Domain, _: &Zones, interval: &Interval) -> Option<Microjoules> {
        let cpus = u32::try_from(interval.cpus).ok().filter(|cpus| *cpus > 0)?;
        // Not limited to the length: the CPU time is read at another time than the clock, and a limit would lose the difference.
        let used = interval.used / cpus;
        (domain == Domain::Cpu).then(|| self.0.idle().over(interval.length) + self.0.dynamic().over(used))
    }

    fn idle(&self, _: Domain) -> Option<Watts> {
        Some(self.0.idle())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_counts_all_cpu_time() {
        let model = Model("10W..110W".parse().expect("a range"));
        let joules = |used: [u64; 2]| -> f64 {
            let energy = used.map(|used| {
                let interval = Interval { length: Duration::from_secs(10), used: Duration::from_secs(used), cpus: 2 };
                model.energy(Domain::Cpu, &Zones::default(), &interval).expect("a number of CPUs").0 as f64 / 1e6
            });
            energy.into_iter().sum()
        };
        // Both CPUs were busy for 20 s. The first reading of their time was late.
        assert_eq!(joules([21, 19]), 2200.0);
        assert_eq!(joules([21, 19]), joules([20, 20]));
    }
}
