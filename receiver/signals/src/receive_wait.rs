//! `receive_wait`: time that packets wait in the receive queue of their socket.

use undercurrent_ebpf::abi::{loss::PacketLoss, series::Series};

use super::{
    Entry, Settings, attributes, detail,
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
    hooks: |settings| hooks(settings).to_vec(),
    maps: &[&LATENCY, &WORKLOAD_LATENCY, &GROUP_LATENCY, &WAITING],
    constants: |on| {
        vec![
            Constant::flag("signal.receive_wait", on.settings.receive_wait.enabled),
            detail::arrival_constant(on.settings),
        ]
    },
    losses: |on| KIND.reasons(on),
    ..Entry::new("receive_wait", "Time that packets wait for the reader of their socket", &[&WAIT], |opening| {
        Durations::open(opening, &KIND, |_| hooks(opening.settings).iter().all(|hook| opening.kernel.serves(hook)))
    })
};

/// Returns the hooks at the start and the end of a wait.
fn hooks(settings: &Settings) -> [&'static Hook; 2] {
    [detail::arrival_hook(settings), &hooks::SOCKET_READ]
}

static WAIT: Descriptor = Descriptor {
    name: "undercurrent.network.receive.wait.duration",
    unit: "s",
    description: "Time from a packet's arrival for its socket until it is read.",
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
