//! The signals: each reads what its handlers left in the kernel's cells, or a file of the kernel's, and yields
//! measurements. Names, hooks, metrics and docs of a signal derive from its one entry in [`REGISTRY`].

mod attributes;
mod cpu_throttled;
mod extra_latency;
pub mod filtering;
pub mod grouping;
mod growth;
pub mod itself;
mod latency;
mod network_cpu;
mod network_drops;
mod receive_driver;
mod receive_wait;
mod reference;
mod softirq_wait;
mod softnet;
mod status;
mod tcp_retransmits;
mod tcp_rtt;
#[cfg(test)]
mod testing;
mod thinning;
mod timings;
mod transmit;
mod workload_cpu;

use std::io;

use undercurrent_ebpf::abi::softirq::SoftirqCells;

use crate::{
    config::Signals as Settings,
    kernel::{Kernel, KernelError, hooks::Hook, maps::ByCpu},
    telemetry::{Descriptor, Readings, UnixNanos},
    workloads::{Files, NoAccounting, NoQuotas, Slot, Workloads},
};

pub use grouping::{Grouping, SharedGrouping};
pub use latency::KIND as LATENCY;
pub use reference::markdown;
pub use status::{SignalStatus, statuses};
pub use thinning::Thinning;
pub use timings::{Owned, Timings};
pub use workload_cpu::source as cpu_time_source;

/// A signal that is being measured.
pub trait Signal {
    /// Adds what was measured since the start, by whom it belongs to.
    ///
    /// # Errors
    /// Where the kernel's file or map cannot be read; the other signals go on.
    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError>;

    /// Clears what is kept for a slot, which another workload will have: everything of the last one is delivered.
    fn forget(&mut self, _: Slot) {}
}

/// Why a signal could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what}: {source}")]
pub struct ReadError {
    /// The file.
    pub what: &'static str,
    /// The reason.
    #[source]
    pub source: io::Error,
}

/// Why a signal could not begin.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A map is not there.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// CPU time is not told by cgroup.
    #[error(transparent)]
    NoAccounting(#[from] NoAccounting),
    /// What came of quotas is not told by cgroup.
    #[error(transparent)]
    NoQuotas(#[from] NoQuotas),
}

/// What a signal is opened with.
pub struct Opening<'a> {
    /// The kernel, listened to.
    pub kernel: &'a Kernel,
    /// What the configuration says of all signals.
    pub settings: &'a Settings,
    /// The files about cgroups and processes; `None` if no cgroups are mounted.
    pub files: Option<&'a Files>,
    /// Whose measurements are.
    pub workloads: &'a Workloads,
    /// What packets are told apart by beside that.
    pub grouping: Option<&'a SharedGrouping>,
    /// Since when cells count.
    pub start: UnixNanos,
}

impl Opening<'_> {
    /// What programs keep of the network softirqs.
    ///
    /// # Errors
    /// Where the map cannot be mapped.
    fn softirqs(&self) -> Result<ByCpu<SoftirqCells>, KernelError> {
        self.kernel.by_cpu("SOFTIRQ")
    }
}

/// What a kernel, or its host, takes from a signal, hooks aside, and why.
pub enum Caveat {
    /// A part of it.
    Less(String),
    /// All of it.
    Nothing(String),
    /// Nothing: there is nothing here to measure.
    Idle(String),
}

/// The caveats of a kernel and its host, under a configuration.
pub type Caveats = fn(&Settings, &Kernel) -> Vec<Caveat>;

/// A signal of the product.
pub struct Entry {
    /// Its name in configuration, logs, status and docs.
    pub name: &'static str,
    /// One sentence for people.
    pub summary: &'static str,
    /// Its metrics.
    pub metrics: &'static [&'static Descriptor],
    /// Whether the configuration wants it.
    pub enabled: fn(&Settings) -> bool,
    /// The hooks it listens to under a configuration.
    pub hooks: fn(&Settings) -> Vec<&'static Hook>,
    /// Whether nothing is measured where one of them is absent.
    pub needs_every_hook: bool,
    /// What of it this kernel or host keeps from being measured.
    pub caveats: Caveats,
    /// Begins to measure.
    pub open: fn(&Opening<'_>) -> Result<Box<dyn Signal>, OpenError>,
}

/// Every signal, in the order of the catalogue.
pub static REGISTRY: [&Entry; 12] = [
    &network_cpu::ENTRY,
    &workload_cpu::ENTRY,
    &cpu_throttled::ENTRY,
    &softnet::ENTRY,
    &latency::ENTRY,
    &receive_wait::ENTRY,
    &receive_driver::ENTRY,
    &softirq_wait::ENTRY,
    &tcp_rtt::ENTRY,
    &transmit::ENTRY,
    &tcp_retransmits::ENTRY,
    &network_drops::ENTRY,
];

/// Every metric of the catalogue, each once: the signals' and the sidecar's own.
pub fn catalogue() -> impl Iterator<Item = (&'static str, &'static Descriptor)> {
    let signals = REGISTRY.iter().flat_map(|entry| entry.metrics.iter().map(|metric| (entry.name, *metric)));
    signals.chain(itself::METRICS.iter().map(|metric| (itself::NAME, *metric)))
}

/// The signals that a configuration wants.
pub fn wanted(settings: &Settings) -> impl Iterator<Item = &'static Entry> {
    REGISTRY.iter().copied().filter(|entry| (entry.enabled)(settings))
}

/// The hooks of all wanted signals, each once, in the order of a packet's way.
#[must_use]
pub fn hooks(settings: &Settings) -> Vec<&'static Hook> {
    let wanted: Vec<&Hook> = wanted(settings).flat_map(|entry| (entry.hooks)(settings)).collect();
    crate::kernel::hooks::ALL.into_iter().filter(|hook| wanted.contains(hook)).collect()
}

/// The functions of the kernel that are layers because the user names them.
pub fn functions(settings: &Settings) -> impl Iterator<Item = &str> {
    let latency = Some(&settings.latency).filter(|latency| latency.enabled);
    latency.into_iter().flat_map(|latency| latency.extra_layers.iter())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::telemetry::{AttributeKey, View};

    #[test]
    fn names_are_unique_and_known_to_the_configuration() {
        let names: BTreeSet<_> = REGISTRY.iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), REGISTRY.len());
        let configured = serde_json::to_value(Settings::default()).expect("settings");
        let configured: BTreeSet<_> = configured.as_object().expect("an object").keys().cloned().collect();
        assert_eq!(names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), configured);
    }

    #[test]
    fn what_is_seen_beside_a_metric_is_in_the_catalogue() {
        let beside = |metric: &Descriptor| if let View::Beside(sides) = metric.view { sides } else { &[] };
        for (metric, side) in catalogue().flat_map(|(_, metric)| beside(metric).iter().map(move |side| (metric, side)))
        {
            let (_, other) = catalogue().find(|(_, other)| other.name == side.metric).expect(side.metric);
            assert_eq!((other.instrument, other.unit), (metric.instrument, metric.unit), "{}", side.metric);
            let has =
                |(key, value): &(_, _)| other.attributes.iter().any(|of| of.key == *key && of.values.contains(value));
            assert!(side.attributes.iter().all(has), "{side:?}");
            let told =
                |key: &&AttributeKey| !key.opt_in && !side.attributes.iter().any(|(chosen, _)| *chosen == key.key);
            let left: Vec<_> = other.attributes.iter().filter(told).collect();
            assert_eq!(left, metric.attributes.iter().collect::<Vec<_>>(), "{} has a row for each", metric.name);
        }
    }

    #[test]
    fn metrics_follow_the_conventions() {
        let mut names = BTreeSet::new();
        for (_, metric) in catalogue() {
            assert!(names.insert(metric.name), "{} stands once", metric.name);
            assert!(!metric.name.split('.').any(|part| part == "total"), "{}", metric.name);
            assert!(metric.description.ends_with('.'), "{}", metric.name);
        }
    }
}
