//! Energy of the node and its workloads.

use super::{
    Dashboard,
    Kind::{Lines, Stack},
    Panel, Row, unit,
};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "energy",
    title: "Undercurrent: energy",
    description: "Power of the node's zones, and its division over workloads.",
    rows: &[
        Row {
            title: "Measured",
            panels: &[
                Panel::new(
                    Lines,
                    "Power by zone",
                    unit::WATTS,
                    "The power meters of the node. Zones contain each other: do not add them. Empty with a model.",
                    "energy.md#sources",
                    &[(
                        "{{host_name}} {{hw_id}}",
                        "sum by (host_name, hw_id) (rate(hw_energy_joules_total{$hosts}[$__rate_interval]))",
                    )],
                ),
                Panel::new(
                    Lines,
                    "Power of the platform",
                    unit::WATTS,
                    "The meters of the whole machine, if it has any.",
                    "energy.md#sources",
                    &[(
                        "{{host_name}} {{hw_id}}",
                        "sum by (host_name, hw_id) (rate(hw_host_energy_joules_total{$hosts}[$__rate_interval]))",
                    )],
                ),
            ],
        },
        Row {
            title: "Divided",
            panels: &[
                Panel::new(
                    Stack,
                    "Power by workload",
                    unit::WATTS,
                    "The power of each workload. The node has the work outside of workloads, and the idle power of the machine.",
                    "energy.md#division",
                    &[(
                        "{{workload}} {{undercurrent_energy_use}}",
                        "sum by (workload, instance, undercurrent_energy_use) (named(rate(undercurrent_energy_joules_total{$hosts}[$__rate_interval])))",
                    )],
                ),
                Panel::new(
                    Stack,
                    "Power of the network stack by workload",
                    unit::WATTS,
                    "The part of network events: the receive softirqs of the workload's packets and its socket calls.",
                    "energy.md#division",
                    &[(
                        "{{workload}}",
                        "sum by (workload, instance) (named(rate(undercurrent_energy_joules_total{undercurrent_energy_use=\"network\", $hosts}[$__rate_interval])))",
                    )],
                ),
                Panel::new(
                    Stack,
                    "Power by use",
                    unit::WATTS,
                    "The whole node: idle power, network events, and other work.",
                    "energy.md#division",
                    &[(
                        "{{host_name}} {{undercurrent_energy_use}}",
                        "sum by (host_name, undercurrent_energy_use) (rate(undercurrent_energy_joules_total{$hosts}[$__rate_interval]))",
                    )],
                ),
                Panel::new(
                    Lines,
                    "Attribution gap",
                    unit::WATTS,
                    "Meters of RAPL minus the parts of all workloads and the node. It is zero, except for a moment after a change of the \
                     set of workloads.",
                    "energy.md#division",
                    &[
                        (
                            "{{host_name}} cpu",
                            "sum by (host_name) (rate(hw_energy_joules_total{hw_id=~\"package-[^/]+\", $hosts}[$__rate_interval])) - sum by (host_name) (rate(undercurrent_energy_joules_total{undercurrent_energy_domain=\"cpu\", undercurrent_energy_source=\"rapl\", $hosts}[$__rate_interval]))",
                        ),
                        (
                            "{{host_name}} memory",
                            "sum by (host_name) (rate(hw_energy_joules_total{hw_id=~\"package-[^/]+/dram\", $hosts}[$__rate_interval])) - sum by (host_name) (rate(undercurrent_energy_joules_total{undercurrent_energy_domain=\"memory\", undercurrent_energy_source=\"rapl\", $hosts}[$__rate_interval]))",
                        ),
                    ],
                ),
            ],
        },
    ],
};
