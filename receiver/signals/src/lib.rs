//! The signals. A signal reads the cells of its eBPF programs, or a file of the kernel, and returns measurements.
//! Names, hooks, metrics and docs of a signal derive from its entry in [`REGISTRY`].

use undercurrent_base::{privileges, text};
use undercurrent_host::{ksoftirqd, process_usage, softnet as softnet_stat, sysfs};
use undercurrent_kernel as kernel;
use undercurrent_options as options;
use undercurrent_packets as packets;
use undercurrent_reader as reader;
use undercurrent_telemetry as telemetry;
use undercurrent_traceparent as traceparent;
use undercurrent_workloads as workloads;

mod attributes;
mod cpu_throttled;
mod detail;
mod divide;
pub mod durations;
pub mod energy;
mod entry;
mod error;
mod growth;
pub mod internal;
pub mod latency;
mod lost;
pub mod network_cpu;
mod network_drops;
pub mod network_functions;
pub mod processor;
pub mod receive_driver;
mod receive_segments;
mod receive_wait;
mod signal;
mod slot_counter;
mod slot_words;
pub mod slow_packets;
mod softirq_wait;
pub mod softnet;
mod status;
mod tcp_listen_overflows;
pub mod tcp_peers;
mod tcp_retransmits;
mod tcp_rtt;
mod tcp_transactions;
#[cfg(test)]
mod testing;
mod threads;
pub mod transmit;
mod workload_cpu;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::softirq::SoftirqCells;

use crate::{
    kernel::{
        Kernel, KernelError,
        constant::Constant,
        filter_map, groups,
        hooks::{self, Hook},
        memory::PlannedMap,
    },
    options::{DetailSwitch, Level, Switch},
    packets::GroupWords,
    telemetry::Descriptor,
};

pub use crate::kernel::plan::SignalStatus;
pub use detail::reader_hook;
pub use durations::{Durations, SlotHistograms};
pub use energy::{Phase, Settings as EnergySettings, Trial};
pub use entry::{Caveat, Caveats, ConstantContext, Entry, HooksNeeded};
pub use error::{OpenError, ReadError};
pub use latency::KIND as LATENCY;
pub use lost::LossConditions;
pub use network_functions::Estimates;
pub use signal::{OpenContext, Signal, Traced};
pub use status::statuses;
pub use workload_cpu::{SharedCpuTimes, source as cpu_time_source};

/// Softirq durations by CPU.
pub static SOFTIRQS: PlannedMap = PlannedMap::by_cpu::<SoftirqCells>("SOFTIRQ", |sizing| sizing.cpus);

/// The reason for failed readings.
const READ_FAILED: &str = "read_failed";

/// Declares every signal in catalogue order: its module, and the type of its settings.
macro_rules! signals {
    ($($name:ident: $settings:ty,)*) => {
        /// The settings of every signal. `undercurrent signals` prints the metrics of each.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct Settings {
            $(
                #[doc = concat!("The settings of `", stringify!($name), "`.")]
                #[schemars(description = format!("{}.", $name::ENTRY.summary))]
                pub $name: $settings,
            )*
        }

        impl Settings {
            /// Returns settings that require every possible hook.
            #[must_use]
            pub fn complete() -> Self {
                let mut settings = Self { network_cpu: network_cpu::Settings::complete(), ..Self::default() };
                settings.set_level(Level::Detailed);
                settings
            }

            /// Disables every signal.
            pub fn disable_all(&mut self) {
                $(self.$name.enabled = false.into();)*
            }

            /// Returns true if a signal is enabled.
            #[must_use]
            pub fn enables(&self, signal: &str) -> bool {
                $((signal == stringify!($name) && is_on(self.$name.enabled)))||*
            }
        }

        /// Every signal, in catalogue order.
        pub static REGISTRY: &[&Entry] = &[$(&$name::ENTRY),*];
    };
}

signals! {
    network_cpu: network_cpu::Settings,
    network_functions: network_functions::Settings,
    workload_cpu: Switch,
    cpu_throttled: Switch,
    threads: Switch,
    softnet: softnet::Settings,
    latency: latency::Settings,
    receive_wait: Switch,
    receive_driver: Switch,
    receive_segments: Switch,
    slow_packets: slow_packets::Settings,
    softirq_wait: DetailSwitch,
    tcp_rtt: Switch,
    tcp_transactions: Switch,
    tcp_peers: tcp_peers::Settings,
    transmit: transmit::Settings,
    tcp_retransmits: Switch,
    tcp_listen_overflows: Switch,
    network_drops: Switch,
    processor: processor::Settings,
    energy: energy::Settings,
}

impl Settings {
    /// Sets the keys that the configuration leaves to the level.
    pub fn set_level(&mut self, level: Level) {
        let is_detailed = level == Level::Detailed;
        self.network_cpu.set_level(level);
        self.latency.set_level(level);
        self.softirq_wait.enabled.get_or_insert(is_detailed);
        self.tcp_peers.enabled.get_or_insert(is_detailed);
        self.transmit.enabled.get_or_insert(is_detailed);
    }
}

/// Returns the value of a key `enabled`; false if it was left to the level, and none is set.
fn is_on(enabled: impl Into<Option<bool>>) -> bool {
    enabled.into().unwrap_or_default()
}

/// Returns every metric of the catalogue, internal telemetry included.
pub fn catalogue() -> impl Iterator<Item = (&'static str, &'static Descriptor)> {
    let signals = REGISTRY.iter().flat_map(|entry| entry.metrics.iter().map(|metric| (entry.name, *metric)));
    signals.chain(internal::METRICS.iter().map(|metric| (internal::NAME, *metric)))
}

/// Returns all loss reasons of each signal, of workload attribution, and of the sidecar's processes.
fn loss_reasons() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let of_signals = REGISTRY.iter().map(|entry| (entry.name, (entry.losses)(&LossConditions::ANY)));
    let others = [(workloads::NAME, workloads::loss_reasons(None)), (internal::NAME, internal::LOSSES.to_vec())];
    of_signals.chain(others).filter(|(_, reasons)| !reasons.is_empty())
}

/// Returns each item once, in the order of their first occurrences.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for item in items {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
}

/// Returns the enabled signals.
pub fn enabled(settings: &Settings) -> impl Iterator<Item = &'static Entry> {
    REGISTRY.iter().copied().filter(|entry| settings.enables(entry.name))
}

/// Returns the hooks of all enabled signals without duplicates: first [`hooks::SHARED`] in order, then the hooks of
/// single signals.
#[must_use]
pub fn hooks(settings: &Settings) -> Vec<&'static Hook> {
    let enabled: Vec<&'static Hook> = distinct(enabled(settings).flat_map(|entry| (entry.hooks)(settings)));
    let (shared, own): (Vec<_>, Vec<_>) = enabled.iter().copied().partition(|hook| hooks::SHARED.contains(hook));
    hooks::SHARED.into_iter().filter(|hook| shared.contains(hook)).chain(own).collect()
}

/// Returns the hooks that only the signal `processor` needs, which depend on the counters of the machine.
#[must_use]
pub fn counter_hooks(settings: &Settings) -> Vec<&'static Hook> {
    let mut others = settings.clone();
    others.processor.enabled = false;
    let needed = hooks(&others);
    hooks(settings).into_iter().filter(|hook| !needed.contains(hook)).collect()
}

/// Returns every hook, without duplicates.
#[must_use]
pub fn all_hooks() -> Vec<&'static Hook> {
    let own = hooks(&Settings::complete()).into_iter().filter(|hook| !hooks::SHARED.contains(hook));
    hooks::SHARED.into_iter().chain(own).collect()
}

/// Returns every hook, with those of the same name that only differ in their alternates.
#[must_use]
pub fn every_hook() -> Vec<&'static Hook> {
    all_hooks().into_iter().chain(network_functions::SINGLE_SOURCES).collect()
}

/// Returns every map whose size depends on the machine and the settings. The flag is true if an enabled feature uses
/// the map.
pub fn planned_maps(settings: &Settings) -> impl Iterator<Item = (&'static PlannedMap, bool)> + use<> {
    let mut maps: Vec<(&'static PlannedMap, bool)> = Vec::new();
    for entry in REGISTRY {
        for map in entry.maps {
            let is_used = settings.enables(entry.name);
            match maps.iter_mut().find(|(known, _)| known.name == map.name) {
                Some((_, used)) => *used |= is_used,
                None => maps.push((map, is_used)),
            }
        }
    }
    // These maps are empty unless packets are filtered, grouped or attributed.
    let others = [&filter_map::CHOICES].into_iter().chain(groups::MAPS).chain(workloads::MAPS);
    maps.into_iter().chain(others.map(|map| (map, true)))
}

/// Returns the constants of every signal.
#[must_use]
pub fn constants(context: &ConstantContext<'_>) -> Vec<Constant> {
    REGISTRY.iter().flat_map(|entry| (entry.constants)(context)).collect()
}

/// Returns the words of groups in the maps of all signals.
///
/// # Errors
/// If a map cannot be mapped into memory.
pub fn group_words(kernel: &Kernel) -> Result<Vec<GroupWords>, KernelError> {
    Ok(vec![durations::group_words(kernel)?, latency::group_words(kernel)?])
}

/// Returns true if an enabled signal groups packets by interface or network namespace.
#[must_use]
pub fn are_grouped(settings: &Settings) -> bool {
    let is_grouped = |metric: &&Descriptor| metric.attributes.contains(&attributes::INTERFACE);
    enabled(settings).flat_map(|entry| entry.metrics.iter().copied()).any(|metric| is_grouped(&metric))
}

/// Returns the kernel functions that the user adds as layers.
pub fn functions(settings: &Settings) -> impl Iterator<Item = &str> {
    let latency = Some(&settings.latency).filter(|latency| latency.enabled);
    latency.into_iter().flat_map(|latency| latency.extra_layers.iter())
}

/// Returns the kernel functions that samples are classified by; none if the signal is disabled.
#[must_use]
pub fn classified(settings: &Settings) -> Vec<String> {
    let functions = Some(&settings.network_functions).filter(|functions| functions.enabled);
    functions.map_or_else(Vec::new, network_functions::functions)
}

#[cfg(test)]
mod tests;
