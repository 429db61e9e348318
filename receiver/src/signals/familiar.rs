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

const CPU: &str = "undercurrent.cpu.time";
const RECEIVE: &str = "undercurrent.network.receive.duration";
const RTT: &str = "undercurrent.tcp.rtt";
const RETRANSMITS: &str = "undercurrent.tcp.retransmits";

/// Metrics of other tools, by tool.
pub const FAMILIAR: [Familiar; 22] = [
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
        "every network namespace, by workload",
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
    absent(OBI, "obi.network.flow.bytes", "not measured: Undercurrent counts no bytes"),
];
