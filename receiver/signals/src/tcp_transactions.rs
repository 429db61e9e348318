//! `tcp_transactions`: requests and responses of TCP connections, their bytes, and the connections themselves, by role.

use undercurrent_ebpf::abi::{
    loss::PacketLoss,
    series::Series,
    transactions::{Count, Role, WORDS},
};

use super::{
    Entry, OpenContext, OpenError, Signal,
    attributes::{ROLE, role},
    durations::{DurationKind, Durations, LATENCY, WORKLOAD_LATENCY},
    signal::Several,
    slot_counter::{self, CountMap, SlotCounter},
    slot_words::entries,
};
use crate::{
    kernel::{
        constant::{Constant, Feature},
        hooks::{CGROUP_SKB, Hook, TRANSPORT, Within, tracepoint, whole},
        memory::PlannedMap,
    },
    telemetry::{AttributeKey, Attributes, Descriptor, Instrument, View},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    hooks: |_| vec![&HOOK, &FAILURE],
    maps: &[&LATENCY, &WORKLOAD_LATENCY, &TRANSACTIONS],
    constants: |on| {
        // The programs follow transactions for both signals.
        let follows = on.settings.tcp_transactions.enabled || on.settings.tcp_peers.is_enabled();
        let enabled = Constant::flag("signal.tcp_transactions", follows);
        vec![enabled.requires(Feature::SocketOfPacket)]
    },
    losses: |on| TRANSACTION_KIND.reasons(on),
    ..Entry::new(
        "tcp_transactions",
        "Requests and responses of TCP connections: their number, duration and bytes, by workload and role; and the connections",
        &[&TRANSACTION, &CONNECTION, &CONNECTIONS.metric, &IO.metric],
        open,
    )
};

/// The segments that a connection receives. No program runs when it sends.
pub static HOOK: Hook = Hook {
    name: "tcp_segment",
    reads_timestamps: false,
    sees_traffic: true,
    within: Some(Within { hook: &TRANSPORT, alternate: CGROUP_SKB, requires: Some(Feature::SocketOfPacket) }),
    alternates: &[],
};

/// A connection ends with an error.
static FAILURE: Hook = Hook {
    name: "tcp_failure",
    reads_timestamps: false,
    sees_traffic: false,
    within: None,
    alternates: &[whole("tracepoint", &[tracepoint("inet_sk_error_report")])],
};

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let served = opening.kernel.serves(&HOOK);
    Ok(Box::new(Several(vec![
        Durations::open(opening, &TRANSACTION_KIND, |_| served)?,
        Durations::open(opening, &CONNECTION_KIND, |_| served)?,
        slot_counter::open(opening, [&CONNECTIONS, &IO])?,
    ])))
}

/// `undercurrent.tcp.outcome`.
const OUTCOME: AttributeKey =
    AttributeKey::listed("undercurrent.tcp.outcome", &["established", "refused", "reset", "timed_out"]);
/// `network.io.direction`.
pub const DIRECTION: AttributeKey = AttributeKey::listed("network.io.direction", &["transmit", "receive"]);

static TRANSACTION: Descriptor = Descriptor {
    name: "undercurrent.tcp.transaction.duration",
    unit: "s",
    description: "Time of a transaction of a TCP connection. At a server: from the arrival of the last segment of a request until the \
                  first segment of the response departs. At a client: from the departure of the request's first segment until the last \
                  segment of the response arrives.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[ROLE],
    view: View::Section,
};

static TRANSACTION_KIND: DurationKind = DurationKind {
    signal: "tcp_transactions",
    metric: &TRANSACTION,
    series: Series::TRANSACTION,
    // A server may begin its response before the request has ended.
    losses: |_, _| vec![PacketLoss::Negative, PacketLoss::MissingStart],
    describe: |series| match series {
        Series::Transaction(of) => Attributes::new().with(ROLE.key, role(of)),
        _ => Attributes::new(),
    },
};

static CONNECTION: Descriptor = Descriptor {
    name: "undercurrent.tcp.connection.duration",
    unit: "s",
    description: "Time from the handshake of a TCP connection until one of its ends closes it, as far as this end knows.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[ROLE],
    view: View::Section,
};

static CONNECTION_KIND: DurationKind = DurationKind {
    signal: "tcp_transactions",
    metric: &CONNECTION,
    series: Series::CONNECTION,
    losses: |_, _| Vec::new(),
    describe: |series| match series {
        Series::Connection(of) => Attributes::new().with(ROLE.key, role(of)),
        _ => Attributes::new(),
    },
};

static CONNECTIONS: SlotCounter = SlotCounter {
    metric: Descriptor::counter(
        "undercurrent.tcp.connections",
        "{connection}",
        "TCP connections that were established, that the other end refused, established ones that the other end reset, and both that timed out.",
        &[OUTCOME, ROLE],
    ),
    map: MAP,
    counts: |_| {
        let established = Role::ALL.map(|role| (Count::Established(role), "established", role));
        let reset = Role::ALL.map(|role| (Count::Reset(role), "reset", role));
        let timed_out = Role::ALL.map(|role| (Count::TimedOut(role), "timed_out", role));
        let refused = [(Count::Refused, "refused", Role::Client)];
        let outcomes = established.into_iter().chain(reset).chain(timed_out).chain(refused);
        let point = |(count, outcome, of): (Count, &'static str, Role)| {
            (count.index(), Attributes::new().with(OUTCOME.key, outcome).with(ROLE.key, role(of)))
        };
        outcomes.map(point).collect()
    },
    has_zeros: false,
};

static IO: SlotCounter = SlotCounter {
    metric: Descriptor::counter(
        "undercurrent.tcp.io",
        "By",
        "Bytes of data that TCP connections sent and received, without headers and retransmissions.",
        &[DIRECTION],
    ),
    map: MAP,
    counts: |_| {
        let point = |count: Count, direction| (count.index(), Attributes::new().with(DIRECTION.key, direction));
        vec![point(Count::Sent, "transmit"), point(Count::Received, "receive")]
    },
    has_zeros: false,
};

/// Counts by slot and shard.
pub static TRANSACTIONS: PlannedMap = PlannedMap::new("TRANSACTIONS", size_of::<[u64; WORDS]>(), entries);

const MAP: CountMap = CountMap { map: &TRANSACTIONS, words: WORDS, is_sharded: true, of_node: None };
