//! The settings of `latency`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::latency::Layer;

use crate::options::{Functions, in_order};

/// Time from a packet's arrival until it reaches each layer of the receive path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether it is measured.
    pub enabled: bool,
    /// The layers to measure; what the kernel offers no hook for stays absent.
    pub layers: Layers,
    /// Functions of the kernel that are layers too, up to eight, such as `ip_rcv_finish`: any that takes a packet (`struct
    /// sk_buff *`). `undercurrent doctor` says of each whether it is one, and why not.
    pub extra_layers: Functions,
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

impl Settings {
    /// Whether TCP's data that waited for a missing segment is to be told from other data at a layer.
    #[must_use]
    pub fn excludes_blocked(&self, at: Layer) -> bool {
        self.enabled && self.layers.contains(at) && self.head_of_line_blocking == HeadOfLineBlocking::Exclude
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            layers: Layers::default(),
            extra_layers: Functions::default(),
            head_of_line_blocking: HeadOfLineBlocking::default(),
        }
    }
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

impl From<Layers> for Vec<LayerName> {
    fn from(layers: Layers) -> Self {
        layers.iter().map(LayerName::from).collect()
    }
}
