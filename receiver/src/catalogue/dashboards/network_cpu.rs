//! CPU time of the network stack.

use super::{
    Dashboard,
    Kind::{Band, Lines, Stack},
    Panel, Row, unit,
};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "network-cpu",
    title: "Undercurrent: network CPU",
    description: "CPU time of the network stack by workload, event, function and CPU.",
    rows: &[
        Row {
            title: "Estimated from samples",
            panels: &[
                Panel::new(
                    Band,
                    "CPU time with its 95% interval",
                    unit::SHARE,
                    "CPU time of all network events of the selected hosts, as a share of one CPU. The interval is 1.96 standard errors wide \
                     on each side; a longer time range per point makes it narrower.",
                    "internals/estimates.md#error",
                    &[
                        (
                            "lower",
                            "clamp_min(sum(rate(undercurrent_network_estimated_cpu_time_seconds_total{$hosts}[$__rate_interval])) - 1.96 * sum(rate(undercurrent_network_estimated_cpu_variance_s2_total{$hosts}[$__rate_interval])) / sqrt(sum(increase(undercurrent_network_estimated_cpu_variance_s2_total{$hosts}[$__rate_interval])) > 0), 0)",
                        ),
                        (
                            "estimate",
                            "sum(rate(undercurrent_network_estimated_cpu_time_seconds_total{$hosts}[$__rate_interval]))",
                        ),
                        (
                            "upper",
                            "sum(rate(undercurrent_network_estimated_cpu_time_seconds_total{$hosts}[$__rate_interval])) + 1.96 * sum(rate(undercurrent_network_estimated_cpu_variance_s2_total{$hosts}[$__rate_interval])) / sqrt(sum(increase(undercurrent_network_estimated_cpu_variance_s2_total{$hosts}[$__rate_interval])) > 0)",
                        ),
                    ],
                ),
                Panel::new(
                    Stack,
                    "By event",
                    unit::SHARE,
                    "The event that caused the work, as a share of one CPU.",
                    "reading.md#functions-of-the-network-stack",
                    &[(
                        "{{undercurrent_network_event}}",
                        "sum by (undercurrent_network_event) (rate(undercurrent_network_estimated_cpu_time_seconds_total{$hosts}[$__rate_interval]))",
                    )],
                ),
                Panel::new(
                    Stack,
                    "By workload",
                    unit::SHARE,
                    "The share of all network CPU time. The node has the work without a workload, for example forwarding.",
                    "reading.md#functions-of-the-network-stack",
                    &[(
                        "{{workload}}",
                        "sum by (workload, instance) (named(rate(undercurrent_network_estimated_cpu_time_seconds_total{$hosts}[$__rate_interval]))) / on () group_left () sum(rate(undercurrent_network_estimated_cpu_time_seconds_total{$hosts}[$__rate_interval]))",
                    )],
                ),
                Panel::new(
                    Stack,
                    "By function",
                    unit::SHARE,
                    "Classes of kernel functions, as a share of one CPU. Functions exclude each other and add up to their event.",
                    "reading.md#functions-of-the-network-stack",
                    &[(
                        "{{undercurrent_network_event}}: {{undercurrent_network_function}}",
                        "sum by (undercurrent_network_event, undercurrent_network_function) (rate(undercurrent_network_function_cpu_time_seconds_total{$hosts}[$__rate_interval]))",
                    )],
                ),
            ],
        },
        Row {
            title: "Receive softirq by CPU",
            panels: &[
                Panel::new(
                    Lines,
                    "Processed packets",
                    unit::PACKETS,
                    "Packets that the receive softirq of each CPU processed. One busy CPU among idle ones is visible here first.",
                    "reading.md#softnet",
                    &[(
                        "{{host_name}} CPU {{cpu_logical_number}}",
                        "sum by (host_name, cpu_logical_number) (rate(undercurrent_softnet_processed_total{$hosts}[$__rate_interval]))",
                    )],
                )
                .wide(8),
                Panel::new(
                    Lines,
                    "Dropped packets",
                    unit::PACKETS,
                    "Packets that were lost at the full backlog of a CPU, before any protocol saw them.",
                    "reading.md#softnet",
                    &[(
                        "{{host_name}} CPU {{cpu_logical_number}}",
                        "sum by (host_name, cpu_logical_number) (rate(undercurrent_softnet_dropped_total{$hosts}[$__rate_interval]))",
                    )],
                )
                .wide(8),
                Panel::new(
                    Lines,
                    "Squeezed runs",
                    unit::PER_SECOND,
                    "Runs of the receive softirq that stopped with packets left, because their budget or time was used up.",
                    "reading.md#softnet",
                    &[(
                        "{{host_name}} CPU {{cpu_logical_number}}",
                        "sum by (host_name, cpu_logical_number) (rate(undercurrent_softnet_squeezed_total{$hosts}[$__rate_interval]))",
                    )],
                )
                .wide(8),
            ],
        },
        Row {
            title: "Level detailed",
            panels: &[
                Panel::new(
                    Stack,
                    "Exact time of softirqs",
                    unit::SHARE,
                    "CPU time of the network softirqs, as a share of one CPU. Needs the level detailed.",
                    "reading.md#network-cpu-time",
                    &[(
                        "{{undercurrent_network_event}}",
                        "sum by (undercurrent_network_event) (rate(undercurrent_network_cpu_time_seconds_total{$hosts}[$__rate_interval]))",
                    )],
                )
                .wide(8),
                Panel::new(
                    Lines,
                    "Wait of softirqs, p99",
                    unit::SECONDS,
                    "Time from the raise of a network softirq to its run. Needs the level detailed.",
                    "reading.md#wait-of-softirqs",
                    &[(
                        "{{host_name}} {{undercurrent_softirq}}",
                        "histogram_quantile(0.99, sum by (host_name, undercurrent_softirq) (rate(undercurrent_softirq_wait_duration_seconds{$hosts}[$__rate_interval])))",
                    )],
                )
                .wide(8),
                Panel::new(
                    Lines,
                    "Way out, p99",
                    unit::SECONDS,
                    "Time that packets spent in each stage of the transmit path. The stages follow each other. Needs the level detailed.",
                    "reading.md#transmit-latency",
                    &[(
                        "{{host_name}} {{undercurrent_network_stage}}",
                        "histogram_quantile(0.99, sum by (host_name, undercurrent_network_stage) (rate(undercurrent_network_transmit_duration_seconds{$hosts}[$__rate_interval])))",
                    )],
                )
                .wide(8),
            ],
        },
    ],
};
