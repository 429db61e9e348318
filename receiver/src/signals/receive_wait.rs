//! `receive_wait`: how long packets wait in their sockets' queues until they are read.

use undercurrent_ebpf::abi::{
    latency::{Series, waiting},
    loss::PacketLoss,
};

use super::{
    Entry, HooksNeeded, attributes,
    durations::{Durations, GROUP_LATENCY, Kind, LATENCY, WORKLOAD_LATENCY},
};
use crate::{
    kernel::{
        hooks::{self, Hook},
        memory::PlannedMap,
    },
    telemetry::{Attributes, Descriptor, Instrument, View},
};

pub static ENTRY: Entry = Entry {
    name: "receive_wait",
    summary: "Time from a packet's arrival in its socket's queue until it is read",
    metrics: &[&WAIT],
    hooks: |_| HOOKS.to_vec(),
    maps: &[&LATENCY, &WORKLOAD_LATENCY, &GROUP_LATENCY, &WAITING],
    losses: || KIND.reasons(),
    hooks_needed: HooksNeeded::All,
    caveats: |_, _| Vec::new(),
    open: |opening| Durations::open(opening, &KIND, |_| HOOKS.iter().all(|hook| opening.kernel.serves(hook))),
};

/// The packets that wait.
static WAITING: PlannedMap = PlannedMap::new("WAITING", size_of::<u64>(), |_| waiting::ENTRIES);

/// Where a wait begins, and where it ends.
static HOOKS: [&Hook; 2] = [&hooks::SOCKET_ENQUEUED, &hooks::SOCKET_READ];

static WAIT: Descriptor = Descriptor {
    name: "undercurrent.network.receive.wait.duration",
    unit: "s",
    description: "Time from a packet's arrival in its socket's queue until it was read.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[attributes::TRANSPORT, attributes::NETWORK, attributes::INTERFACE, attributes::NAMESPACE],
    view: View::Section,
};

static KIND: Kind = Kind {
    signal: ENTRY.name,
    metric: &WAIT,
    series: Series::WAIT,
    losses: &[PacketLoss::Unmatched],
    describe: |series| {
        let Series::Wait(transport, network) = series else { return Attributes::new() };
        let attributes = Attributes::new().with(attributes::TRANSPORT.key, attributes::transport(transport));
        attributes.with(attributes::NETWORK.key, attributes::network(network))
    },
};
