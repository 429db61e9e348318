//! The settings of `transmit`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::transmit::TransmitLayer;

use crate::options::in_order;

/// Time that packets take for each part of their way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether it is measured.
    pub enabled: bool,
    /// The layers to measure: `transport` (from TCP or UDP to the qdisc), `qdisc` (from there to the driver) and `device` (until the
    /// driver has done with the packet), which looks at every packet that is used up, received ones too.
    pub layers: TransmitLayers,
}

impl Default for Settings {
    fn default() -> Self {
        Self { enabled: true, layers: TransmitLayers::default() }
    }
}

/// A layer's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TransmitLayerName {
    Transport,
    Qdisc,
    Device,
}

impl From<TransmitLayerName> for TransmitLayer {
    fn from(name: TransmitLayerName) -> Self {
        match name {
            TransmitLayerName::Transport => Self::Transport,
            TransmitLayerName::Qdisc => Self::Qdisc,
            TransmitLayerName::Device => Self::Device,
        }
    }
}

impl From<TransmitLayer> for TransmitLayerName {
    fn from(layer: TransmitLayer) -> Self {
        match layer {
            TransmitLayer::Transport => Self::Transport,
            TransmitLayer::Qdisc => Self::Qdisc,
            TransmitLayer::Device => Self::Device,
        }
    }
}

/// At least one layer, each once, in the order of the transmit path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<TransmitLayerName>", into = "Vec<TransmitLayerName>")]
#[schemars(extend("minItems" = 1, "uniqueItems" = true))]
pub struct TransmitLayers(Vec<TransmitLayer>);

impl TransmitLayers {
    /// Every layer asked for.
    pub fn iter(&self) -> impl Iterator<Item = TransmitLayer> {
        self.0.iter().copied()
    }

    /// Whether a layer was asked for.
    #[must_use]
    pub fn contains(&self, layer: TransmitLayer) -> bool {
        self.0.contains(&layer)
    }

    /// The layers as programs know them.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.iter().map(TransmitLayer::bit).sum()
    }
}

impl Default for TransmitLayers {
    fn default() -> Self {
        Self(TransmitLayer::ALL.to_vec())
    }
}

impl TryFrom<Vec<TransmitLayerName>> for TransmitLayers {
    type Error = &'static str;

    fn try_from(names: Vec<TransmitLayerName>) -> Result<Self, Self::Error> {
        let asked: Vec<TransmitLayer> = names.into_iter().map(TransmitLayer::from).collect();
        in_order(&TransmitLayer::ALL, &asked).map(Self)
    }
}

impl From<TransmitLayers> for Vec<TransmitLayerName> {
    fn from(layers: TransmitLayers) -> Self {
        layers.iter().map(TransmitLayerName::from).collect()
    }
}
