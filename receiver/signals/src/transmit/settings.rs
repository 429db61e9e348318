//! The settings of `transmit`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::transmit::TransmitLayer;

use crate::{kernel::constant::Constant, options::in_order};

/// Time that packets spend in each stage of the transmit path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if the signal is measured.
    pub enabled: bool,
    /// The stages to measure: `stack` (from TCP or UDP to the qdisc), `qdisc` (from there to the driver) and `device` (until the driver
    /// frees the packet). The programs of `device` run for every freed packet, received packets included.
    pub stages: Stages,
}

impl Settings {
    /// Returns the constants of the programs.
    pub(super) fn constants(&self) -> Vec<Constant> {
        let stages = self.stages.iter().map(TransmitLayer::bit).sum();
        vec![Constant::flag("signal.transmit", self.enabled), Constant::number("transmit.layers", stages)]
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { enabled: true, stages: Stages::default() }
    }
}

/// The name of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StageName {
    Stack,
    Qdisc,
    Device,
}

impl From<StageName> for TransmitLayer {
    fn from(name: StageName) -> Self {
        match name {
            StageName::Stack => Self::Transport,
            StageName::Qdisc => Self::Qdisc,
            StageName::Device => Self::Device,
        }
    }
}

impl From<TransmitLayer> for StageName {
    fn from(layer: TransmitLayer) -> Self {
        match layer {
            TransmitLayer::Transport => Self::Stack,
            TransmitLayer::Qdisc => Self::Qdisc,
            TransmitLayer::Device => Self::Device,
        }
    }
}

/// A list of distinct stages in transmit order, with at least one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<StageName>", into = "Vec<StageName>")]
#[schemars(extend("minItems" = 1, "uniqueItems" = true))]
pub struct Stages(Vec<TransmitLayer>);

impl Stages {
    /// Returns the stages.
    pub fn iter(&self) -> impl Iterator<Item = TransmitLayer> {
        self.0.iter().copied()
    }

    /// Returns true if the list contains a stage.
    #[must_use]
    pub fn contains(&self, layer: TransmitLayer) -> bool {
        self.0.contains(&layer)
    }
}

impl Default for Stages {
    fn default() -> Self {
        Self(TransmitLayer::ALL.to_vec())
    }
}

impl TryFrom<Vec<StageName>> for Stages {
    type Error = &'static str;

    fn try_from(names: Vec<StageName>) -> Result<Self, Self::Error> {
        let asked: Vec<TransmitLayer> = names.into_iter().map(TransmitLayer::from).collect();
        in_order(&TransmitLayer::ALL, &asked).map(Self)
    }
}

impl From<Stages> for Vec<StageName> {
    fn from(layers: Stages) -> Self {
        layers.iter().map(StageName::from).collect()
    }
}
