//! `network_cpu`: exact CPU time of the network softirqs, from entry to exit on every CPU, divided over the workloads that receive
//! the packets.

mod shares;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::{
    cost::NetworkEvent,
    softirq::{Softirq, SoftirqCells},
};

use self::shares::{NETWORK_CPU, Shares};

use super::{Caveat, Entry, HooksNeeded, OpenContext, OpenError, ReadError, SOFTIRQS, Signal, attributes};
use crate::{
    kernel::{
        Kernel,
        hooks::{self, Alternate, Attachment, Hook, Program},
        maps::ByCpu,
    },
    telemetry::{AttributeKey, Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    name: "network_cpu",
    summary: "CPU time of the network softirqs, in interrupt context and in ksoftirqd, by the workload that receives the packets",
    metrics: &[&CPU_TIME],
    hooks: |_| vec![&hooks::SOFTIRQ_ENTRY, &hooks::SOFTIRQ_EXIT, &hooks::DROP, &RECEIVER],
    maps: &[&SOFTIRQS, &NETWORK_CPU],
    losses: |_| Vec::new(),
    hooks_needed: HooksNeeded::Each(&[&hooks::SOFTIRQ_ENTRY, &hooks::SOFTIRQ_EXIT]),
    caveats: |_, kernel| caveats(kernel),
    open,
};

const EVENT: &str = "undercurrent.network.event";
const ATTRIBUTION: &str = "undercurrent.attribution";
/// Measured for one owner.
const DIRECT: &str = "direct";
/// Divided over the receivers of packets.
const SHARED: &str = "shared";

static CPU_TIME: Descriptor = Descriptor {
    name: "undercurrent.network.cpu.time",
    unit: "s",
    description: "CPU time of the network softirqs.",
    instrument: Instrument::Counter,
    attributes: &[
        AttributeKey::listed(EVENT, &["receive_softirq", "transmit_softirq"]),
        AttributeKey::listed(ATTRIBUTION, &[DIRECT, SHARED]),
        attributes::cpu(true),
    ],
    view: View::Section,
};

/// A packet is about to enter its receiving socket, which determines the workload that pays for it.
static RECEIVER: Hook = Hook {
    name: "receiver",
    reads_timestamps: false,
    sees_traffic: true,
    within: Some((&hooks::TRANSPORT, "cgroup_skb")),
    alternates: &[Alternate {
        name: "cgroup_skb",
        programs: &[Program { symbol: "cgroup_charge", attachment: Attachment::CgroupIngress, target: "root cgroup" }],
        leaves_out: None,
        needs_all: false,
    }],
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
    /// `None` if time is not divided over workloads.
    shares: Option<Shares>,
    start: UnixNanos,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let (kernel, per_cpu) = (opening.kernel, opening.settings.network_cpu.per_cpu);
    let divides = kernel.by_workload() && kernel.serves(&RECEIVER) && !per_cpu;
    Ok(Box::new(NetworkCpu {
        cells: opening.softirqs()?,
        per_cpu,
        shares: divides.then(|| Shares::open(kernel)).transpose()?,
        start: opening.start,
    }))
}

fn caveats(kernel: &Kernel) -> Vec<Caveat> {
    let (host, mut caveats) = (kernel.host(), Vec::new());
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

/// Returns a point of an event's time in nanoseconds.
fn point(event: &'static str, attribution: &'static str, start: UnixNanos, nanoseconds: u64) -> Point {
    let attributes = Attributes::new().with(EVENT, event).with(ATTRIBUTION, attribution);
    Point { attributes, start, data: Data::Double(nanoseconds as f64 / 1e9) }
}

impl NetworkCpu {
    /// Returns the points of the softirqs that are not divided.
    fn of_node(&self) -> Vec<Point> {
        let mut by_cpu = Vec::new();
        self.cells.for_each(|cpu, cells| by_cpu.push((cpu, cells.state.map(|state| state.time))));
        let is_divided = |softirq: Softirq| self.shares.is_some() && softirq == Softirq::Receive;
        let whole = Softirq::ALL.into_iter().filter(|softirq| !is_divided(*softirq));
        let points = whole.flat_map(|softirq| {
            let times = by_cpu.iter().map(move |(cpu, times)| (*cpu, times[softirq as usize]));
            let point = |time| point(event(softirq), DIRECT, self.start, time);
            if self.per_cpu {
                let of_cpu = |(cpu, time)| {
                    let point: Point = point(time);
                    Point { attributes: point.attributes.with(attributes::CPU, cpu as i64), ..point }
                };
                times.map(of_cpu).collect::<Vec<_>>()
            } else {
                vec![point(times.map(|(_, time)| time).sum())]
            }
        });
        points.collect()
    }
}

impl Signal for NetworkCpu {
    fn forget(&mut self, slot: Slot) {
        if let Some(shares) = &self.shares {
            shares.clear(slot);
        }
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let mut node = self.of_node();
        let share = |shares: &Shares, slot, start| {
            point(event(Softirq::Receive), SHARED, start, shares.time(slot, NetworkEvent::ReceiveSoftirq))
        };
        if let Some(shares) = &self.shares {
            node.push(share(shares, Slot::NODE, self.start));
            for (slot, start) in workloads.slots().filter(|(slot, _)| shares.has_time(*slot)) {
                let points = vec![share(shares, slot, start)];
                readings.add(slot, Metric { descriptor: &CPU_TIME, points });
            }
        }
        readings.add(Slot::NODE, Metric { descriptor: &CPU_TIME, points: node });
        Ok(())
    }
}
