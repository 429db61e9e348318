//! One workload, or several.

use super::{
    COLUMNS, Dashboard,
    Kind::{Heatmap, Lines, Stack, Traces},
    Panel, Row, unit,
};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "workload",
    title: "Undercurrent: workload",
    description: "Latency, drops, CPU time and power of the selected workloads.",
    rows: &[
        Row {
            title: "Latency",
            panels: &[
                Panel::new(
                    Heatmap,
                    "Time from arrival to read",
                    unit::SECONDS,
                    "Packets by the time until the application had read them. A point leads to the span of a slow packet.",
                    "reading.md#receive-latency",
                    &[(
                        "",
                        "sum(rate(undercurrent_network_receive_duration_seconds{undercurrent_network_layer=\"socket_read\", $workloads}[$__rate_interval]))",
                    )],
                ),
                Panel::new(
                    Lines,
                    "Time from arrival to each layer",
                    unit::SECONDS,
                    "The median and the 99th percentile. A later layer includes the earlier ones.",
                    "reading.md#receive-latency",
                    &[
                        (
                            "{{undercurrent_network_layer}} p50",
                            "histogram_quantile(0.5, sum by (undercurrent_network_layer) (rate(undercurrent_network_receive_duration_seconds{$workloads}[$__rate_interval])))",
                        ),
                        (
                            "{{undercurrent_network_layer}} p99",
                            "histogram_quantile(0.99, sum by (undercurrent_network_layer) (rate(undercurrent_network_receive_duration_seconds{$workloads}[$__rate_interval])))",
                        ),
                    ],
                ),
                Panel::new(
                    Lines,
                    "Wait in the socket",
                    unit::SECONDS,
                    "Time that data waited for its reader. It grows if the application is busy, short of CPU time, or held by a quota.",
                    "reading.md#wait-in-the-socket",
                    &[
                        (
                            "{{network_transport}} p50",
                            "histogram_quantile(0.5, sum by (network_transport) (rate(undercurrent_network_receive_wait_duration_seconds{$workloads}[$__rate_interval])))",
                        ),
                        (
                            "{{network_transport}} p99",
                            "histogram_quantile(0.99, sum by (network_transport) (rate(undercurrent_network_receive_wait_duration_seconds{$workloads}[$__rate_interval])))",
                        ),
                    ],
                ),
                Panel::new(
                    Lines,
                    "Round-trip time",
                    unit::SECONDS,
                    "TCP's smoothed round-trip time when data was read. The other end may delay an acknowledgement for tens of milliseconds.",
                    "reading.md#host-or-network",
                    &[
                        (
                            "p50",
                            "histogram_quantile(0.5, sum(rate(undercurrent_tcp_rtt_seconds{$workloads}[$__rate_interval])))",
                        ),
                        (
                            "p99",
                            "histogram_quantile(0.99, sum(rate(undercurrent_tcp_rtt_seconds{$workloads}[$__rate_interval])))",
                        ),
                    ],
                ),
            ],
        },
        Row {
            title: "Slow packets",
            panels: &[Panel::new(
                Traces,
                "Slow traces",
                unit::OF_DATA,
                "The newest traces with a slow packet of the workload, from Jaeger. Select one workload that has the name of a service.",
                "slow-packets.md",
                &[("", "network receive")],
            )
            .wide(COLUMNS)],
        },
        Row {
            title: "Transactions",
            panels: &[
                Panel::new(
                    Lines,
                    "Requests",
                    unit::PER_SECOND,
                    "Requests with a response on TCP connections, as the end that answers and as the end that asks.",
                    "reading.md#transactions",
                    &[(
                        "{{undercurrent_role}}",
                        "histogram_count(sum by (undercurrent_role) (rate(undercurrent_tcp_transaction_duration_seconds{$workloads}[$__rate_interval])))",
                    )],
                ),
                Panel::new(
                    Lines,
                    "Time of a transaction",
                    unit::SECONDS,
                    "Server: until the response departs. Client: until the response has arrived, with the network and the other end.",
                    "reading.md#transactions",
                    &[
                        (
                            "{{undercurrent_role}} p50",
                            "histogram_quantile(0.5, sum by (undercurrent_role) (rate(undercurrent_tcp_transaction_duration_seconds{$workloads}[$__rate_interval])))",
                        ),
                        (
                            "{{undercurrent_role}} p99",
                            "histogram_quantile(0.99, sum by (undercurrent_role) (rate(undercurrent_tcp_transaction_duration_seconds{$workloads}[$__rate_interval])))",
                        ),
                    ],
                ),
                Panel::new(
                    Lines,
                    "Connections",
                    unit::PER_SECOND,
                    "Established connections, and those that the other end refused or reset.",
                    "reading.md#transactions",
                    &[(
                        "{{undercurrent_role}} {{undercurrent_tcp_outcome}}",
                        "sum by (undercurrent_role, undercurrent_tcp_outcome) (rate(undercurrent_tcp_connections_total{$workloads}[$__rate_interval]))",
                    )],
                ),
                Panel::new(
                    Lines,
                    "Data sent and received",
                    unit::BYTES_PER_SECOND,
                    "Bytes of data on TCP connections, without headers and retransmissions.",
                    "reading.md#transactions",
                    &[(
                        "{{network_io_direction}}",
                        "sum by (network_io_direction) (rate(undercurrent_tcp_io_bytes_total{$workloads}[$__rate_interval]))",
                    )],
                ),
            ],
        },
        Row {
            title: "Losses",
            panels: &[
                Panel::new(
                    Lines,
                    "Drops by reason",
                    unit::PACKETS,
                    "Packets of this workload's sockets that the kernel dropped. socket_rcvbuff means that the reader is too slow.",
                    "reading.md#drops",
                    &[(
                        "{{undercurrent_drop_reason}} at {{undercurrent_drop_layer}}",
                        "sum by (undercurrent_drop_reason, undercurrent_drop_layer) (rate(undercurrent_network_drops_total{$workloads}[$__rate_interval]))",
                    )],
                )
                .wide(8),
                Panel::new(
                    Lines,
                    "Retransmits",
                    unit::PER_SECOND,
                    "Segments that TCP sent again: packets are lost in the network or at the other end.",
                    "reading.md#retransmits",
                    &[(
                        "{{workload}}",
                        "sum by (workload, instance) (named(rate(undercurrent_tcp_retransmits_total{$workloads}[$__rate_interval])))",
                    )],
                )
                .wide(8),
                Panel::new(
                    Lines,
                    "Full accept queues",
                    unit::PER_SECOND,
                    "Connection attempts that TCP dropped because the listener did not accept fast enough. Without fentry, only the \
                     node has this figure.",
                    "reading.md#full-accept-queues",
                    &[(
                        "{{workload}}",
                        "sum by (workload, instance) (named(rate(undercurrent_tcp_listen_overflows_total{$workloads}[$__rate_interval])))",
                    )],
                )
                .wide(8),
            ],
        },
        Row {
            title: "Resources",
            panels: &[
                Panel::new(
                    Stack,
                    "CPU time by use",
                    unit::SHARE,
                    "Share of one CPU. Softirq time belongs to the receivers of the packets.",
                    "reading.md#cpu-time-of-workloads",
                    &[(
                        "{{undercurrent_cpu_use}}",
                        "sum by (undercurrent_cpu_use) (rate(undercurrent_cpu_time_seconds_total{$workloads}[$__rate_interval]))",
                    )],
                ),
                Panel::new(
                    Stack,
                    "Power by use",
                    unit::WATTS,
                    "The workload's part of the node's power, with the part of network events. Empty without meters or a model.",
                    "energy.md#division",
                    &[(
                        "{{undercurrent_energy_use}}",
                        "sum by (undercurrent_energy_use) (rate(undercurrent_energy_joules_total{$workloads}[$__rate_interval]))",
                    )],
                ),
                Panel::new(
                    Lines,
                    "Received packets",
                    unit::PACKETS,
                    "Packets that reached TCP or UDP.",
                    "reading.md#receive-latency",
                    &[(
                        "{{network_transport}}",
                        "histogram_count(sum by (network_transport) (rate(undercurrent_network_receive_duration_seconds{undercurrent_network_layer=\"transport\", $workloads}[$__rate_interval])))",
                    )],
                ),
                Panel::new(
                    Lines,
                    "Received bytes",
                    unit::BYTES_PER_SECOND,
                    "Bytes of the packets that reached TCP or UDP, with the header of the transport protocol.",
                    "reading.md#segments",
                    &[(
                        "{{network_transport}}",
                        "sum by (network_transport) (rate(undercurrent_network_receive_io_bytes_total{$workloads}[$__rate_interval]))",
                    )],
                ),
            ],
        },
    ],
};
