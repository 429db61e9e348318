//! Metrics of other tools that measure what a metric of the catalogue measures.

/// A metric of another tool.
pub struct Familiar {
    /// The name of the tool.
    pub tool: &'static str,
    /// The name of the metric.
    pub name: &'static str,
    /// The metric of the catalogue; `None` if Undercurrent does not measure the quantity.
    pub ours: Option<&'static str>,
    /// The difference between both metrics.
    pub difference: &'static str,
}

const fn familiar(tool: &'static str, name: &'static str, ours: &'static str, difference: &'static str) -> Familiar {
    Familiar { tool, name, ours: Some(ours), difference }
}

const fn absent(tool: &'static str, name: &'static str, difference: &'static str) -> Familiar {
    Familiar { tool, name, ours: None, difference }
}

const CONVENTIONS: &str = "OpenTelemetry";
const CADVISOR: &str = "cAdvisor";
const NODE_EXPORTER: &str = "node_exporter";
/// xdp-project/bpf-examples, netstacklat/netstacklat.c (`hook_to_str`), and cloudflare/ebpf_exporter, which exports its map.
const NETSTACKLAT: &str = "netstacklat";
/// OpenTelemetry eBPF Instrumentation, pkg/export/attributes.
const OBI: &str = "OBI";
/// sustainable-computing-io/kepler 0.11, internal/exporter/prometheus/collector.
const KEPLER: &str = "Kepler";
/// hubblo-org/scaphandre 1.0, src/exporters/mod.rs and src/sensors/mod.rs.
const SCAPHANDRE: &str = "Scaphandre";
/// iopsystems/rezolus 5.17, `stats.rs` of each sampler in src/agent/samplers.
const REZOLUS: &str = "Rezolus";
/// inspektor-gadget/inspektor-gadget 0.55, gadgets/profile_tcprtt. A metric has the name of the field; the user names its scope.
const PROFILE_TCPRTT: &str = "Inspektor Gadget `profile_tcprtt`";
/// inspektor-gadget/inspektor-gadget 0.55, gadgets/profile_qdisc_latency.
const PROFILE_QDISC_LATENCY: &str = "Inspektor Gadget `profile_qdisc_latency`";

const CPU: &str = "undercurrent.cpu.time";
const ENERGY: &str = "undercurrent.energy";
const MEASURED_ENERGY: &str = "hw.energy";
const PLATFORM_ENERGY: &str = "hw.host.energy";
const RECEIVE: &str = "undercurrent.network.receive.duration";
const RECEIVED_BYTES: &str = "undercurrent.network.receive.io";
const RTT: &str = "undercurrent.tcp.rtt";
const RETRANSMITS: &str = "undercurrent.tcp.retransmits";

/// Metrics of other tools, by tool.
pub const FAMILIAR: [Familiar; 53] = [
    familiar(
        CONVENTIONS,
        "container.cpu.time",
        CPU,
        "by `undercurrent.cpu.use` instead of `cpu.mode`; one resource for each container, pod, unit or other cgroup",
    ),
    familiar(CONVENTIONS, "k8s.pod.cpu.time", CPU, "the sum over the containers of a pod and the pod itself"),
    familiar(CONVENTIONS, "system.cpu.time", CPU, "the sum over all resources of a `host.name`, without idle time"),
    familiar(
        CADVISOR,
        "container_cpu_usage_seconds_total",
        CPU,
        "without nested workloads; softirqs count for the receivers of the packets",
    ),
    familiar(
        CADVISOR,
        "container_cpu_cfs_throttled_seconds_total",
        "undercurrent.cpu.throttled.time",
        "without nested workloads",
    ),
    familiar(
        NODE_EXPORTER,
        "node_cpu_seconds_total{mode=\"softirq\"}",
        "undercurrent.network.cpu.time",
        "only network softirqs, in nanoseconds instead of timer ticks, and ksoftirqd too",
    ),
    familiar(
        NODE_EXPORTER,
        "node_cpu_seconds_total{mode=\"steal\"}",
        "undercurrent.cpu.steal.time",
        "the sum over all CPUs",
    ),
    familiar(
        NODE_EXPORTER,
        "node_softirqs_functions_total",
        "undercurrent.softirq.wait.duration",
        "the count of the histogram, only `NET_RX` and `NET_TX`",
    ),
    familiar(
        NODE_EXPORTER,
        "node_softnet_processed_total",
        "undercurrent.softnet.processed",
        "the kernel's counter since the start of the sidecar",
    ),
    familiar(
        NODE_EXPORTER,
        "node_softnet_dropped_total",
        "undercurrent.softnet.dropped",
        "the kernel's counter since the start of the sidecar",
    ),
    familiar(
        NODE_EXPORTER,
        "node_softnet_times_squeezed_total",
        "undercurrent.softnet.squeezed",
        "the kernel's counter since the start of the sidecar",
    ),
    familiar(NODE_EXPORTER, "node_netstat_Tcp_RetransSegs", RETRANSMITS, "every network namespace, by workload"),
    familiar(
        NODE_EXPORTER,
        "node_netstat_TcpExt_ListenOverflows",
        "undercurrent.tcp.listen.overflows",
        "by fentry: every network namespace, by workload; else: the sidecar's network namespace, for the node",
    ),
    familiar(
        NODE_EXPORTER,
        "node_netstat_Udp_RcvbufErrors",
        "undercurrent.network.drops",
        "`socket_rcvbuff` at `socket`, by workload",
    ),
    familiar(NETSTACKLAT, "netstack_latency_seconds{hook=\"ip-start\"}", RECEIVE, "`ip`"),
    familiar(NETSTACKLAT, "netstack_latency_seconds{hook=\"tcp-start\"}", RECEIVE, "`transport`; `udp-start` too"),
    familiar(
        NETSTACKLAT,
        "netstack_latency_seconds{hook=\"tcp-socket-enqueued\"}",
        RECEIVE,
        "`socket_enqueued`; `udp-socket-enqueued` too",
    ),
    familiar(
        NETSTACKLAT,
        "netstack_latency_seconds{hook=\"tcp-socket-read\"}",
        RECEIVE,
        "`socket_read`; `udp-socket-read` too",
    ),
    familiar(OBI, "obi.stat.tcp.rtt", RTT, "by workload that reads, not by pair of addresses"),
    familiar(OBI, "obi.stat.tcp.retransmits", RETRANSMITS, "by workload, not by pair of addresses"),
    absent(
        OBI,
        "obi.stat.tcp.failed.connections",
        "not measured; `undercurrent.tcp.listen.overflows` has the attempts that a full accept queue refused",
    ),
    familiar(
        OBI,
        "obi.network.flow.bytes",
        RECEIVED_BYTES,
        "received bytes of TCP and UDP, from the transport header on; by workload, not by pair of addresses",
    ),
    familiar(
        KEPLER,
        "kepler_node_cpu_joules_total",
        MEASURED_ENERGY,
        "by `hw.id` instead of `zone`; each socket has its own zone",
    ),
    familiar(
        KEPLER,
        "kepler_node_cpu_active_joules_total",
        ENERGY,
        "the sum of `network` and `compute` over all resources of a `host.name`; energy above the idle power, not a share by CPU use",
    ),
    familiar(
        KEPLER,
        "kepler_node_cpu_idle_joules_total",
        ENERGY,
        "`idle` of the node: the idle power over time, not a share by CPU use",
    ),
    familiar(
        KEPLER,
        "kepler_container_cpu_joules_total",
        ENERGY,
        "the domains `cpu` and `memory` instead of zones; with the share of network events",
    ),
    familiar(KEPLER, "kepler_pod_cpu_joules_total", ENERGY, "the sum over the containers of a pod and the pod itself"),
    familiar(KEPLER, "kepler_container_cpu_watts", ENERGY, "the rate"),
    familiar(
        KEPLER,
        "kepler_container_cpu_seconds_total",
        CPU,
        "without nested workloads; softirqs count for the receivers of the packets",
    ),
    absent(
        KEPLER,
        "kepler_process_cpu_joules_total",
        "not measured: energy is divided over workloads, not over processes",
    ),
    familiar(
        KEPLER,
        "kepler_platform_watts",
        PLATFORM_ENERGY,
        "the rate; from `psys` of RAPL or an ACPI power meter instead of Redfish",
    ),
    familiar(
        SCAPHANDRE,
        "scaph_host_power_microwatts",
        PLATFORM_ENERGY,
        "the rate, in watts; without a meter of the platform, the rate of `hw.energy` of packages and memory",
    ),
    familiar(
        SCAPHANDRE,
        "scaph_socket_power_microwatts",
        MEASURED_ENERGY,
        "the rate of the zone `package-N`, in watts",
    ),
    familiar(
        SCAPHANDRE,
        "scaph_domain_power_microwatts",
        MEASURED_ENERGY,
        "the rate of a part of a package, for example `package-0/dram`, in watts",
    ),
    familiar(
        SCAPHANDRE,
        "scaph_process_power_consumption_microwatts",
        ENERGY,
        "the rate, in watts; by workload, not by process; without the idle power",
    ),
    familiar(
        REZOLUS,
        "cpu_usage",
        CPU,
        "the sum over all resources of a `host.name`; by `undercurrent.cpu.use` instead of `state`",
    ),
    familiar(
        REZOLUS,
        "cgroup_cpu_usage",
        CPU,
        "without nested workloads; softirqs count for the receivers of the packets",
    ),
    familiar(
        REZOLUS,
        "cgroup_cpu_bandwidth_throttled_time",
        "undercurrent.cpu.throttled.time",
        "without nested workloads; quotas of slices count for the node",
    ),
    familiar(
        REZOLUS,
        "softirq{kind=\"net_rx\"}",
        "undercurrent.softirq.wait.duration",
        "the count of the histogram; `net_tx` too",
    ),
    familiar(REZOLUS, "softirq_time{kind=\"net_rx\"}", "undercurrent.network.cpu.time", "by workload; `net_tx` too"),
    familiar(
        REZOLUS,
        "cgroup_cpu_cycles",
        "undercurrent.cpu.cycles",
        "cycles of network softirqs count for the receivers of the packets",
    ),
    familiar(REZOLUS, "cgroup_cpu_instructions", "undercurrent.cpu.instructions", "without nested workloads"),
    familiar(REZOLUS, "cpu_l3_access", "undercurrent.cpu.cache.references", "by workload, not by CPU"),
    familiar(REZOLUS, "cpu_l3_miss", "undercurrent.cpu.cache.misses", "by workload, not by CPU"),
    familiar(
        REZOLUS,
        "tcp_packet_latency",
        "undercurrent.network.receive.wait.duration",
        "every packet of TCP and UDP, not the first one since the last read; by workload",
    ),
    familiar(REZOLUS, "tcp_srtt", RTT, "at each read, not at each received segment; by workload"),
    familiar(REZOLUS, "tcp_retransmit", RETRANSMITS, "without segments that this host failed to send; by workload"),
    familiar(
        REZOLUS,
        "network_drop",
        "undercurrent.network.drops",
        "every reason of the kernel, not only errors and exhausted resources; by reason and workload",
    ),
    familiar(
        REZOLUS,
        "network_bytes{direction=\"receive\"}",
        RECEIVED_BYTES,
        "only TCP and UDP, from the transport header on; by workload",
    ),
    familiar(
        REZOLUS,
        "tcp_bytes{direction=\"receive\"}",
        RECEIVED_BYTES,
        "UDP too; all packets that reach TCP, with their headers, not the bytes that were read",
    ),
    absent(REZOLUS, "tcp_connect_latency", "not measured"),
    familiar(PROFILE_TCPRTT, "latency", RTT, "at each read, not at each received segment; by workload"),
    familiar(
        PROFILE_QDISC_LATENCY,
        "latency",
        "undercurrent.network.transmit.duration",
        "the stage `qdisc`, by workload; without dropped packets and without the time before a paced departure",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::signals::catalogue;

    #[test]
    fn familiar_names_refer_to_the_catalogue() {
        let names: BTreeSet<_> = catalogue().map(|(_, metric)| metric.name).collect();
        for familiar in &FAMILIAR {
            assert!(familiar.ours.is_none_or(|ours| names.contains(ours)), "{}", familiar.name);
        }
    }
}
