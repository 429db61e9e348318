//! `tcp_rtt`: smoothed round-trip times of TCP connections at the time of a read.

use undercurrent_ebpf::abi::series::Series;

use super::{
    Caveat, Entry, OpenContext, OpenError, Signal, attributes, detail,
    durations::{DurationKind, Durations, LATENCY, WORKLOAD_LATENCY},
};
use crate::{
    kernel::{Kernel, constant::Constant},
    telemetry::{Attributes, Descriptor, Instrument, Side, View},
};

pub static ENTRY: Entry = Entry {
    hooks: |settings| vec![detail::reader_hook(settings)],
    maps: &[&LATENCY, &WORKLOAD_LATENCY],
    constants: |on| vec![Constant::flag("signal.tcp_rtt", on.settings.tcp_rtt.enabled)],
    losses: |on| KIND.reasons(on),
    caveats: |_, kernel| caveats(kernel),
    ..Entry::new(
        "tcp_rtt",
        "Smoothed round-trip time of TCP connections at each read, by the workload that reads",
        &[&RTT],
        open,
    )
};

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let served = opening.kernel.reads_rtt() && opening.kernel.serves(detail::reader_hook(opening.settings));
    Durations::open(opening, &KIND, |_| served)
}

static RTT: Descriptor = Descriptor {
    name: "undercurrent.tcp.rtt",
    unit: "s",
    description: "Smoothed round-trip time (SRTT) of a TCP connection, recorded when its data is read.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[attributes::NETWORK],
    view: View::Beside(&SIDES),
};

/// The time between a packet's arrival on this host and its read, and the share of the reader in this time.
static SIDES: [Side; 2] = [
    Side {
        heading: "host",
        metric: "undercurrent.network.receive.duration",
        attributes: &[("undercurrent.network.layer", "socket_read"), ("network.transport", "tcp")],
    },
    Side {
        heading: "wait",
        metric: "undercurrent.network.receive.wait.duration",
        attributes: &[("network.transport", "tcp")],
    },
];

static KIND: DurationKind = DurationKind {
    signal: ENTRY.name,
    metric: &RTT,
    series: Series::RTT,
    losses: |_, _| Vec::new(),
    describe: |series| {
        let Series::Rtt(network) = series else { return Attributes::new() };
        Attributes::new().with(attributes::NETWORK.key, attributes::network(network))
    },
};

fn caveats(kernel: &Kernel) -> Vec<Caveat> {
    if kernel.reads_rtt() {
        return Vec::new();
    }
    let reason = "this kernel does not let programs read TCP socket fields; Linux 5.9 and later do";
    vec![Caveat::Unavailable(reason.to_owned())]
}
