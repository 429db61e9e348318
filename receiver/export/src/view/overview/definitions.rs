//! The definition of each figure: name, heading, quantity and metrics.

use super::figure::{Figure, Source};

/// The text and the sources of a figure.
pub(super) struct Definition {
    /// The name in sentences.
    pub(super) name: &'static str,
    /// The heading of the column.
    pub(super) heading: &'static str,
    /// The rank among the columns that are dropped if space is short, highest first. Columns with zero stay.
    pub(super) spare: u8,
    pub(super) kind: Kind,
    /// The first source with points determines the figure.
    pub(super) sources: &'static [Source],
}

/// The quantity of a figure.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// The growth or the events per second.
    PerSecond,
    /// The growth of an energy per second.
    Watts,
    /// The growth of a time per second.
    Share,
    /// The growth of a time of all resources per second, for each CPU of the node.
    ShareOfNode,
    /// A quantile of durations in seconds.
    Quantile(f64),
    /// A figure divided by the sum of others.
    Ratio(Figure, &'static [Figure]),
}

const DURATION: &str = "undercurrent.network.receive.duration";
const LAYER: &str = "undercurrent.network.layer";
const TRANSACTION: &str = "undercurrent.tcp.transaction.duration";
const ROLE: &str = "undercurrent.role";
const CPU_TIME: &str = "undercurrent.cpu.time";
/// A server's requests, or a client's if the workload serves none.
const TRANSACTIONS: &[Source] = &[some(TRANSACTION, &[(ROLE, &["server"])]), some(TRANSACTION, &[(ROLE, &["client"])])];

const fn all(metric: &'static str) -> Source {
    Source { metric, attributes: &[] }
}

const fn some(metric: &'static str, attributes: &'static [(&'static str, &'static [&'static str])]) -> Source {
    Source { metric, attributes }
}

const fn figure(
    name: &'static str,
    heading: &'static str,
    spare: u8,
    kind: Kind,
    sources: &'static [Source],
) -> Definition {
    Definition { name, heading, spare, kind, sources }
}

/// The definitions, in the order of [`Figure::ALL`].
pub(super) static DEFINITIONS: [Definition; Figure::ALL.len()] = [
    figure(
        "received segments",
        "seg/s",
        0,
        Kind::PerSecond,
        &[all("undercurrent.network.receive.segments"), some(DURATION, &[(LAYER, &["transport"])])],
    ),
    figure(
        "wait in the socket (p99)",
        "wait",
        0,
        Kind::Quantile(0.99),
        &[all("undercurrent.network.receive.wait.duration")],
    ),
    figure(
        "time from arrival to read (p99)",
        "read",
        6,
        Kind::Quantile(0.99),
        &[some(DURATION, &[(LAYER, &["socket_read"])])],
    ),
    figure(
        "time to the transport protocol (p99)",
        "stack",
        0,
        Kind::Quantile(0.99),
        &[some(DURATION, &[(LAYER, &["transport"])])],
    ),
    figure("round-trip time (p50)", "rtt", 0, Kind::Quantile(0.5), &[all("undercurrent.tcp.rtt")]),
    figure("retransmitted segments", "retr/s", 2, Kind::PerSecond, &[all("undercurrent.tcp.retransmits")]),
    figure(
        "retransmitted segments for each received one",
        "retr",
        0,
        Kind::Ratio(Figure::Retransmits, &[Figure::Segments]),
        &[],
    ),
    figure(
        "drops of this host",
        "drop/s",
        1,
        Kind::PerSecond,
        &[some("undercurrent.network.drops", &[("undercurrent.drop.layer", &["device", "qdisc", "socket"])])],
    ),
    figure(
        "dropped part of the segments",
        "drop",
        0,
        Kind::Ratio(Figure::Drops, &[Figure::Drops, Figure::Segments]),
        &[],
    ),
    figure(
        "CPU time of the network",
        "net",
        4,
        Kind::Share,
        &[
            some(CPU_TIME, &[("undercurrent.cpu.use", &["network"])]),
            all("undercurrent.network.cpu.time"),
            all("undercurrent.network.estimated_cpu.time"),
        ],
    ),
    figure("CPU time of the workload", "CPU", 0, Kind::Share, &[all(CPU_TIME)]),
    figure("time held by the CPU quota", "quota", 0, Kind::Share, &[all("undercurrent.cpu.throttled.time")]),
    figure("stolen part of the node's CPU time", "steal", 0, Kind::ShareOfNode, &[all("undercurrent.cpu.steal.time")]),
    figure("used part of the node's CPU time", "busy", 0, Kind::ShareOfNode, &[all(CPU_TIME)]),
    figure("power", "power", 7, Kind::Watts, &[all("undercurrent.energy")]),
    figure("requests", "req/s", 3, Kind::PerSecond, TRANSACTIONS),
    figure("time of a request (p99)", "resp", 5, Kind::Quantile(0.99), TRANSACTIONS),
];
