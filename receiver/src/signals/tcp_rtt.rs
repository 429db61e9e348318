//! `tcp_rtt`: the round-trip times of the connections that data is read from, as TCP itself knows them.

use undercurrent_ebpf::abi::latency::Series;

use super::{
    Caveat, Entry, HooksNeeded, attributes,
    durations::{Durations, Kind, LATENCY, WORKLOAD_LATENCY},
};
use crate::{
    kernel::{Kernel, hooks},
    telemetry::{Attributes, Descriptor, Instrument, Side, View},
};

pub static ENTRY: Entry = Entry {
    name: "tcp_rtt",
    summary: "Round-trip time of TCP connections, whenever data is read from them, of each workload that reads and of the node \
              for the rest",
    metrics: &[&RTT],
    hooks: |_| vec![&hooks::SOCKET_READER],
    maps: &[&LATENCY, &WORKLOAD_LATENCY],
    losses: || KIND.reasons(),
    hooks_needed: HooksNeeded::All,
    caveats: |_, kernel| caveats(kernel),
    open: |opening| {
        let served = opening.kernel.reads_rtt() && opening.kernel.serves(&hooks::SOCKET_READER);
        Durations::open(opening, &KIND, |_| served)
    },
};

static RTT: Descriptor = Descriptor {
    name: "undercurrent.tcp.rtt",
    unit: "s",
    description: "Round-trip time that TCP had smoothed of a connection when its data was read.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[attributes::NETWORK],
    view: View::Beside(&SIDES),
};

/// What this host adds between a packet's arrival and the read that takes its data, and how much of that is the reader's.
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

static KIND: Kind = Kind {
    signal: ENTRY.name,
    metric: &RTT,
    series: Series::RTT,
    losses: &[],
    describe: |series| {
        let Series::Rtt(network) = series else { return Attributes::new() };
        Attributes::new().with(attributes::NETWORK.key, attributes::network(network))
    },
};

fn caveats(kernel: &Kernel) -> Vec<Caveat> {
    if kernel.reads_rtt() {
        return Vec::new();
    }
    let without = "this kernel does not show programs what TCP keeps of a connection, as Linux does from 5.9 on";
    vec![Caveat::Unavailable(without.to_owned())]
}
