//! The entry: is it the host or the network?

use super::{
    Dashboard,
    Kind::{Bars, Lines, Reading},
    Panel, Row, unit,
};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "host-or-network",
    title: "Undercurrent: host or network?",
    description: "Tells whether latency comes from the application, the host's kernel, the hypervisor or the network.",
    rows: &[
        Row {
            title: "Latency",
            panels: &[
                Panel::new(
                    Reading,
                    "How to read it",
                    unit::COUNT,
                    "Observations and their likely causes.",
                    "reading.md#reading-the-figures",
                    &[],
                )
                .wide(10),
                Panel::new(
                    Lines,
                    "Host and network, p99",
                    unit::SECONDS,
                    "Time that 99% of the packets did not exceed: until TCP or UDP, until the read, and in the socket only; and the \
                     round-trip time of TCP. Reads that are slower than the round-trip time are the host's.",
                    "reading.md#host-or-network",
                    &[
                        (
                            "{{host_name}} until {{undercurrent_network_layer}}",
                            "histogram_quantile(0.99, sum by (host_name, undercurrent_network_layer) (rate(undercurrent_network_receive_duration_seconds{undercurrent_network_layer=~\"transport|socket_read\", $hosts}[$__rate_interval])))",
                        ),
                        (
                            "{{host_name}} wait in the socket",
                            "histogram_quantile(0.99, sum by (host_name) (rate(undercurrent_network_receive_wait_duration_seconds{$hosts}[$__rate_interval])))",
                        ),
                        (
                            "{{host_name}} round-trip time",
                            "histogram_quantile(0.99, sum by (host_name) (rate(undercurrent_tcp_rtt_seconds{$hosts}[$__rate_interval])))",
                        ),
                    ],
                )
                .wide(14),
                Panel::new(
                    Bars,
                    "Ten slowest readers, p99",
                    unit::SECONDS,
                    "The workloads with the longest time from the arrival of a packet to its read. A bar leads to the workload.",
                    "reading.md#receive-latency",
                    &[(
                        "{{workload}}",
                        "topk(10, histogram_quantile(0.99, sum by (workload, instance) (named(rate(undercurrent_network_receive_duration_seconds{undercurrent_network_layer=\"socket_read\", $workloads}[$__rate_interval])))))",
                    )],
                ),
                Panel::new(
                    Lines,
                    "Round-trip time by workload, p99",
                    unit::SECONDS,
                    "TCP's smoothed round-trip time. The network or the other end is slow if it grows; a slow reader does not change it.",
                    "reading.md#host-or-network",
                    &[(
                        "{{workload}}",
                        "histogram_quantile(0.99, sum by (workload, instance) (named(rate(undercurrent_tcp_rtt_seconds{$workloads}[$__rate_interval]))))",
                    )],
                ),
            ],
        },
        Row {
            title: "Network",
            panels: &[
                Panel::new(
                    Lines,
                    "Retransmits",
                    unit::PER_SECOND,
                    "Segments that TCP sent again: packets are lost in the network or at the other end.",
                    "reading.md#retransmits",
                    &[(
                        "{{host_name}}",
                        "sum by (host_name) (rate(undercurrent_tcp_retransmits_total{$hosts}[$__rate_interval]))",
                    )],
                ),
                Panel::new(
                    Lines,
                    "Drops",
                    unit::PACKETS,
                    "Packets that the kernel of this host dropped, by the layer of the reason.",
                    "reading.md#drops",
                    &[(
                        "{{host_name}} {{undercurrent_drop_layer}}",
                        "sum by (host_name, undercurrent_drop_layer) (rate(undercurrent_network_drops_total{$hosts}[$__rate_interval]))",
                    )],
                ),
            ],
        },
        Row {
            title: "Host",
            panels: &[
                Panel::new(
                    Lines,
                    "Stolen CPU time",
                    unit::SHARE,
                    "The share of the host's CPU time that the hypervisor took. Latency that grows with it is the hypervisor's.",
                    "reading.md#stolen-time",
                    &[(
                        "{{host_name}}",
                        "sum by (host_name) (rate(undercurrent_cpu_steal_time_seconds_total{$hosts}[$__rate_interval])) / count by (host_name) (undercurrent_softnet_processed_total{$hosts})",
                    )],
                )
                .wide(8),
                Panel::new(
                    Lines,
                    "Throttled by CPU quotas",
                    unit::SHARE,
                    "Time in which a CPU quota held runnable tasks, per second, summed over CPUs. A held reader leaves packets in its socket.",
                    "reading.md#quotas",
                    &[(
                        "{{workload}}",
                        "sum by (workload, instance) (named(rate(undercurrent_cpu_throttled_time_seconds_total{$workloads}[$__rate_interval])))",
                    )],
                )
                .wide(8),
                Panel::new(
                    Lines,
                    "Receive softirqs under pressure",
                    unit::PER_SECOND,
                    "Packets dropped at a full backlog, and runs of the receive softirq that ended with packets left.",
                    "reading.md#softnet",
                    &[
                        (
                            "{{host_name}} dropped",
                            "sum by (host_name) (rate(undercurrent_softnet_dropped_total{$hosts}[$__rate_interval]))",
                        ),
                        (
                            "{{host_name}} squeezed",
                            "sum by (host_name) (rate(undercurrent_softnet_squeezed_total{$hosts}[$__rate_interval]))",
                        ),
                    ],
                )
                .wide(8),
            ],
        },
    ],
};
