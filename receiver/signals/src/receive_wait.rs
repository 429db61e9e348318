//! `receive_wait`: time that packets wait in the receive queue of their socket.

use undercurrent_ebpf::abi::{loss::PacketLoss, series::Series};

use super::{
    Entry, attributes,
    durations::{DurationKind, Durations, GROUP_LATENCY, LATENCY, WORKLOAD_LATENCY},
    slow_packets::WAITING,
};
use crate::{
    kernel::{
        constant::Constant,
        hooks::{self, Hook},
    },
    telemetry::{Attributes, Descriptor, Instrument, View},
};

pub static ENTRY: Entry = Entry {
    hooks: |_| HOOKS.to_vec(),
    maps: &[&LATENCY, &WORKLOAD_LATENCY, &GROUP_LATENCY, &WAITING],
    constants: |on| vec![Constant::flag("signal.receive_wait", on.settings.receive_wait.enabled)],
    losses: |on| KIND.reasons(on),
    ..Entry::new(
        "receive_wait",
        "Time that packets wait in the receive queue of their socket until they are read",
        &[&WAIT],
        |opening| Durations::open(opening, &KIND, |_| HOOKS.iter().all(|hook| opening.kernel.serves(hook))),
    )
};

/// The hooks at the start and the end of a wait.
static HOOKS: [&Hook; 2] = [&hooks::SOCKET_ENQUEUED, &hooks::SOCKET_READ];

static WAIT: Descriptor = Descriptor {
    name: "undercurrent.network.receive.wait.duration",
    unit: "s",
    description: "Time from a packet's arrival in its socket's receive queue until it is read.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[attributes::TRANSPORT, attributes::NETWORK, attributes::INTERFACE, attributes::NAMESPACE],
    view: View::Section,
};

static KIND: DurationKind = DurationKind {
    signal: ENTRY.name,
    metric: &WAIT,
    series: Series::WAIT,
    losses: |_, _| vec![PacketLoss::MissingStart],
    describe: |series| {
        let Series::Wait(transport, network) = series else { return Attributes::new() };
        let attributes = Attributes::new().with(attributes::TRANSPORT.key, attributes::transport(transport));
        attributes.with(attributes::NETWORK.key, attributes::network(network))
    },
};
