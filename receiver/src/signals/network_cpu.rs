//! `network_cpu`: exact CPU time of the network softirqs, from entry to exit on every CPU.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::softirq::{Softirq, SoftirqCells};

use super::{Caveat, Entry, HooksNeeded, OpenContext, OpenError, ReadError, SOFTIRQS, Signal, attributes};
use crate::{
    kernel::{hooks, host::Host, maps::ByCpu},
    telemetry::{AttributeKey, Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    name: "network_cpu",
    summary: "CPU time of the network softirqs, in interrupt context and in ksoftirqd",
    metrics: &[&CPU_TIME],
    hooks: |_| vec![&hooks::SOFTIRQ_ENTRY, &hooks::SOFTIRQ_EXIT],
    maps: &[&SOFTIRQS],
    losses: |_| Vec::new(),
    hooks_needed: HooksNeeded::All,
    caveats: |_, kernel| caveats(kernel.host()),
    open,
};

const EVENT: &str = "undercurrent.network.event";

static CPU_TIME: Descriptor = Descriptor {
    name: "undercurrent.network.cpu.time",
    unit: "s",
    description: "CPU time of the network softirqs.",
    instrument: Instrument::Counter,
    attributes: &[AttributeKey::listed(EVENT, &["receive_softirq", "transmit_softirq"]), attributes::cpu(true)],
    view: View::Section,
};

/// The settings of `network_cpu`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if the signal is measured.
    pub enabled: bool,
    /// True if every CPU has points of its own (`cpu.logical_number`).
    pub per_cpu: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { enabled: true, per_cpu: false }
    }
}

struct NetworkCpu {
    cells: ByCpu<SoftirqCells>,
    per_cpu: bool,
    start: UnixNanos,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    Ok(Box::new(NetworkCpu {
        cells: opening.softirqs()?,
        per_cpu: opening.settings.network_cpu.per_cpu,
        start: opening.start,
    }))
}

fn caveats(host: &Host) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    if host.preempt_rt {
        let preempted = "PREEMPT_RT: softirqs run in threads, and their time includes tasks that preempt these threads";
        caveats.push(Caveat::Partial(preempted.to_owned()));
    }
    if !host.threaded_napi.is_empty() {
        caveats.push(Caveat::Partial(format!("threaded NAPI is not measured: {}", host.threaded_napi.join(", "))));
    }
    caveats
}

const fn event(softirq: Softirq) -> &'static str {
    match softirq {
        Softirq::Transmit => "transmit_softirq",
        Softirq::Receive => "receive_softirq",
    }
}

impl Signal for NetworkCpu {
    fn read(&mut self, _: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let mut by_cpu = Vec::new();
        self.cells.for_each(|cpu, cells| by_cpu.push((cpu, cells.state.map(|state| state.time))));
        let point = |attributes: Attributes, nanoseconds: u64| Point {
            attributes,
            start: self.start,
            data: Data::Double(nanoseconds as f64 / 1e9),
        };
        let points = Softirq::ALL.into_iter().flat_map(|softirq| {
            let attributes = Attributes::new().with(EVENT, event(softirq));
            let times = by_cpu.iter().map(move |(cpu, times)| (*cpu, times[softirq as usize]));
            if self.per_cpu {
                let cpu = |(cpu, time)| point(attributes.clone().with(attributes::CPU, cpu as i64), time);
                times.map(cpu).collect::<Vec<_>>()
            } else {
                vec![point(attributes, times.map(|(_, time)| time).sum())]
            }
        });
        readings.add(Slot::NODE, Metric { descriptor: &CPU_TIME, points: points.collect() });
        Ok(())
    }
}
