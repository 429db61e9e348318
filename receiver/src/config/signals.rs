//! What every signal can be told. A signal's key here is its name everywhere: in logs, status, docs and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use undercurrent_ebpf::abi::{histogram::MAX_SCALE, latency::Layer};

use super::{Filter, Functions, Group, Sampling, transmit::Transmit};
use crate::telemetry::Scale;

/// What is measured. `undercurrent signals` says which metrics each signal yields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Signals {
    /// CPU time that the network softirqs take.
    pub network_cpu: NetworkCpu,
    /// CPU time of each workload, and of the node for the rest.
    pub workload_cpu: WorkloadCpu,
    /// Time in which CPU quotas held the tasks of workloads.
    pub cpu_throttled: CpuThrottled,
    /// Time from a network card's own receive timestamp until its driver has handed the packet over.
    pub receive_driver: ReceiveDriver,
    /// Time from when a network softirq is raised until it runs.
    pub softirq_wait: SoftirqWait,
    /// The kernel's own counts of received packets, drops and exhausted budgets.
    pub softnet: Softnet,
    /// Time from a packet's arrival until it reaches each layer of the receive path.
    pub latency: Latency,
    /// Time from a packet's arrival in its socket's queue until it is read.
    pub receive_wait: ReceiveWait,
    /// Round-trip time of TCP connections, whenever data is read from them.
    pub tcp_rtt: TcpRtt,
    /// Time that packets take for each part of their way out.
    pub transmit: Transmit,
    /// Segments that TCP sent again.
    pub tcp_retransmits: TcpRetransmits,
    /// Packets that the kernel dropped, by its reason.
    pub network_drops: NetworkDrops,
}

/// CPU time that the network softirqs take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkCpu {
    /// Whether it is measured.
    pub enabled: bool,
    /// Whether every CPU has its own points (`cpu.logical_number`).
    pub per_cpu: bool,
}

impl Default for NetworkCpu {
    fn default() -> Self {
        Self { enabled: true, per_cpu: false }
    }
}

/// CPU time of each workload, and of the node for the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadCpu {
    /// Whether it is read.
    pub enabled: bool,
}

impl Default for WorkloadCpu {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Time in which CPU quotas held the tasks of workloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CpuThrottled {
    /// Whether it is read.
    pub enabled: bool,
}

impl Default for CpuThrottled {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Time from a network card's own receive timestamp until its driver has handed the packet over, where somebody has
/// switched such timestamps on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiveDriver {
    /// Whether it is measured.
    pub enabled: bool,
}

impl Default for ReceiveDriver {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Time from when a network softirq is raised until it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SoftirqWait {
    /// Whether it is measured.
    pub enabled: bool,
}

impl Default for SoftirqWait {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Round-trip time of TCP connections, whenever data is read from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TcpRtt {
    /// Whether it is measured.
    pub enabled: bool,
}

impl Default for TcpRtt {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Segments that TCP sent again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TcpRetransmits {
    /// Whether they are counted.
    pub enabled: bool,
}

impl Default for TcpRetransmits {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Packets that the kernel dropped, by its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkDrops {
    /// Whether they are counted.
    pub enabled: bool,
}

impl Default for NetworkDrops {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// The kernel's own counts of received packets, drops and exhausted budgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Softnet {
    /// Whether they are read.
    pub enabled: bool,
    /// Whether every CPU has its own points (`cpu.logical_number`): one busy CPU shows here first.
    pub per_cpu: bool,
}

impl Default for Softnet {
    fn default() -> Self {
        Self { enabled: true, per_cpu: true }
    }
}

/// Time from a packet's arrival in its socket's queue until it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiveWait {
    /// Whether it is measured.
    pub enabled: bool,
}

impl Default for ReceiveWait {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Time from a packet's arrival until it reaches each layer of the receive path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Latency {
    /// Whether it is measured.
    pub enabled: bool,
    /// The layers to measure; what the kernel offers no hook for stays absent.
    pub layers: Layers,
    /// Functions of the kernel that are layers too, up to eight, such as `ip_rcv_finish`: any that takes a packet (`struct
    /// sk_buff *`). `undercurrent doctor` says of each whether it is one, and why not.
    pub extra_layers: Functions,
    /// Resolution of the histograms: a bucket's upper bound is 2^(2^-scale) times its lower one. 0 doubles, 3 is finest.
    #[serde(serialize_with = "write_scale", deserialize_with = "read_scale")]
    #[schemars(with = "u8", range(max = MAX_SCALE))]
    pub scale: Scale,
    /// Which packets are measured, here and by `receive_wait`: `all`; one in a power of two, as in `1/16`; or `adaptive`:
    /// all of them up to 5 000 packets a second on the busiest CPU, and one in a power of two beyond, 2 500 at most. A packet is
    /// measured at every layer or at none, and counts for those that are left out. `--sampling` wins.
    pub sampling: Sampling,
    /// Which packets are measured, by what they are; all of them by default.
    pub filter: Filter,
    /// What packets are told apart by beside workload and IP version.
    pub group: Group,
    /// What becomes of a TCP read at `socket_read` whose data waited, or may have waited, for a segment that was lost or
    /// overtaken: that is the network's time. `exclude` counts it in `undercurrent.lost`, as `head_of_line`.
    pub head_of_line_blocking: HeadOfLineBlocking,
}

/// What becomes of TCP reads that waited for a missing segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeadOfLineBlocking {
    /// They are left out, and counted.
    #[default]
    Exclude,
    /// They are measured like all others.
    Include,
}

impl Latency {
    /// Whether TCP's data that waited for a missing segment is to be told from other data at a layer.
    #[must_use]
    pub fn excludes_blocked(&self, at: Layer) -> bool {
        self.enabled && self.layers.contains(at) && self.head_of_line_blocking == HeadOfLineBlocking::Exclude
    }

    const DEFAULT_SCALE: Scale = match Scale::new(2) {
        Some(scale) => scale,
        None => panic!("a scale of the data model"),
    };
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            enabled: true,
            layers: Layers::default(),
            extra_layers: Functions::default(),
            scale: Self::DEFAULT_SCALE,
            sampling: Sampling::default(),
            filter: Filter::default(),
            group: Group::default(),
            head_of_line_blocking: HeadOfLineBlocking::default(),
        }
    }
}

fn write_scale<S: Serializer>(scale: &Scale, serializer: S) -> Result<S::Ok, S::Error> {
    scale.get().serialize(serializer)
}

fn read_scale<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Scale, D::Error> {
    let number = u8::deserialize(deserializer)?;
    Scale::new(number).ok_or_else(|| D::Error::custom(format!("`{number}` is no scale: choose 0 to {MAX_SCALE}")))
}

/// A layer's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum LayerName {
    Ip,
    Transport,
    SocketEnqueued,
    SocketRead,
}

impl From<LayerName> for Layer {
    fn from(name: LayerName) -> Self {
        match name {
            LayerName::Ip => Self::Ip,
            LayerName::Transport => Self::Transport,
            LayerName::SocketEnqueued => Self::SocketEnqueued,
            LayerName::SocketRead => Self::SocketRead,
        }
    }
}

impl From<Layer> for LayerName {
    fn from(layer: Layer) -> Self {
        match layer {
            Layer::Ip => Self::Ip,
            Layer::Transport => Self::Transport,
            Layer::SocketEnqueued => Self::SocketEnqueued,
            Layer::SocketRead => Self::SocketRead,
        }
    }
}

/// At least one layer, each once, in the order of the receive path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<LayerName>", into = "Vec<LayerName>")]
#[schemars(extend("minItems" = 1, "uniqueItems" = true))]
pub struct Layers(Vec<Layer>);

impl Layers {
    /// Every layer asked for.
    pub fn iter(&self) -> impl Iterator<Item = Layer> {
        self.0.iter().copied()
    }

    /// Whether a layer was asked for.
    #[must_use]
    pub fn contains(&self, layer: Layer) -> bool {
        self.0.contains(&layer)
    }
}

impl Default for Layers {
    fn default() -> Self {
        Self(Layer::ALL.to_vec())
    }
}

impl TryFrom<Vec<LayerName>> for Layers {
    type Error = &'static str;

    fn try_from(names: Vec<LayerName>) -> Result<Self, Self::Error> {
        let asked: Vec<Layer> = names.into_iter().map(Layer::from).collect();
        in_order(&Layer::ALL, &asked).map(Self)
    }
}

/// The layers asked for in the order of all: at least one, each once.
pub(super) fn in_order<L: Copy + PartialEq>(all: &[L], asked: &[L]) -> Result<Vec<L>, &'static str> {
    let layers: Vec<L> = all.iter().copied().filter(|layer| asked.contains(layer)).collect();
    if layers.is_empty() {
        return Err("the list of layers is empty: name one, or switch the signal off with `enabled: false`");
    }
    if layers.len() < asked.len() {
        return Err("a layer is named twice: leave one out");
    }
    Ok(layers)
}

impl From<Layers> for Vec<LayerName> {
    fn from(layers: Layers) -> Self {
        layers.iter().map(LayerName::from).collect()
    }
}
