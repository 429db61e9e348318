//! The sidecar itself.

use super::{
    Dashboard,
    Kind::{Lines, Stack, Table},
    Panel, Row, unit,
};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "sidecar",
    title: "Undercurrent itself",
    description: "State, losses, deliveries and cost of the sidecars.",
    rows: &[
        Row {
            title: "State",
            panels: &[
                Panel::new(
                    Table,
                    "Hooks",
                    unit::COUNT,
                    "The state of each hook, and the alternate that serves it.",
                    "troubleshooting.md#hooks",
                    &[(
                        "",
                        "sum by (host_name, undercurrent_hook, undercurrent_hook_state, undercurrent_alternate) (undercurrent_hook_status{$hosts}) == 1",
                    )],
                ),
                Panel::new(
                    Table,
                    "Versions",
                    unit::COUNT,
                    "The version of the sidecar of each host. A host with two versions was updated within the last five minutes.",
                    "prometheus.md#restarts-and-new-nodes",
                    &[(
                        "",
                        "sum by (host_name, undercurrent_version) (undercurrent_build_info{$hosts})",
                    )],
                ),
                Panel::new(
                    Lines,
                    "Lost events",
                    unit::PER_SECOND,
                    "Events that could not be measured or attributed, by reason.",
                    "troubleshooting.md#lost-events",
                    &[(
                        "{{host_name}} {{undercurrent_signal}} {{undercurrent_reason}}",
                        "sum by (host_name, undercurrent_signal, undercurrent_reason) (rate(undercurrent_lost_total{$hosts}[$__rate_interval])) > 0",
                    )],
                )
                .wide(8),
                Panel::new(
                    Lines,
                    "Measured packets",
                    unit::SHARE,
                    "The share of the packets that is measured. Counts include the other packets.",
                    "reading.md#exact-and-estimated-figures",
                    &[("{{host_name}}", "min by (host_name) (undercurrent_sampling_ratio{$hosts})")],
                )
                .wide(8),
                Panel::new(
                    Lines,
                    "Series by host",
                    unit::COUNT,
                    "Series in Prometheus, of the node and its workloads.",
                    "reading.md#number-of-series",
                    &[("{{host_name}}", "count by (host_name) ({host_name!=\"\", $hosts})")],
                )
                .wide(8),
            ],
        },
        Row {
            title: "Deliveries",
            panels: &[
                Panel::new(
                    Lines,
                    "Exported points, spans and log records",
                    unit::PER_SECOND,
                    "Finished exports. Those with an error have its name.",
                    "troubleshooting.md#the-collector-is-down",
                    &[
                        (
                            "{{host_name}} points {{otel_component_type}} {{error_type}}",
                            "sum by (host_name, otel_component_type, error_type) (rate(otel_sdk_exporter_metric_data_point_exported_total{$hosts}[$__rate_interval]))",
                        ),
                        (
                            "{{host_name}} spans {{otel_component_type}} {{error_type}}",
                            "sum by (host_name, otel_component_type, error_type) (rate(otel_sdk_exporter_span_exported_total{$hosts}[$__rate_interval]))",
                        ),
                        (
                            "{{host_name}} log records {{otel_component_type}} {{error_type}}",
                            "sum by (host_name, otel_component_type, error_type) (rate(otel_sdk_exporter_log_exported_total{$hosts}[$__rate_interval]))",
                        ),
                    ],
                ),
                Panel::new(
                    Lines,
                    "Duration of exports, p99",
                    unit::SECONDS,
                    "Time of an export, with retries and the waits between them.",
                    "troubleshooting.md#the-collector-is-down",
                    &[(
                        "{{host_name}} {{otel_component_type}}",
                        "histogram_quantile(0.99, sum by (host_name, otel_component_type) (rate(otel_sdk_exporter_operation_duration_seconds{$hosts}[$__rate_interval])))",
                    )],
                ),
            ],
        },
        Row {
            title: "Cost",
            panels: &[
                Panel::new(
                    Stack,
                    "CPU time",
                    unit::SHARE,
                    "CPU time of the sidecar's processes, as a share of one CPU, without the programs in the kernel.",
                    "overhead.md",
                    &[(
                        "{{host_name}} {{cpu_mode}}",
                        "sum by (host_name, cpu_mode) (rate(process_cpu_time_seconds_total{job=\"undercurrent\", $hosts}[$__rate_interval]))",
                    )],
                )
                .wide(8),
                Panel::new(
                    Stack,
                    "Memory",
                    unit::BYTES,
                    "Resident memory of the processes, and memory of the kernel maps.",
                    "install.md#memory",
                    &[
                        (
                            "{{host_name}} processes",
                            "sum by (host_name) (process_memory_usage_bytes{job=\"undercurrent\", $hosts})",
                        ),
                        ("{{host_name}} maps", "sum by (host_name) (undercurrent_map_memory_bytes{$hosts})"),
                    ],
                )
                .wide(8),
                Panel::new(
                    Lines,
                    "Duration of a snapshot",
                    unit::SECONDS,
                    "Time to read all signals. It grows with the number of workloads.",
                    "reading.md#the-sidecar",
                    &[("{{host_name}}", "max by (host_name) (undercurrent_collect_duration_seconds{$hosts})")],
                )
                .wide(8),
            ],
        },
    ],
};
