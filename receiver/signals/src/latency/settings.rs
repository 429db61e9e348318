//! The settings of `latency`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::latency::Layer;

use crate::{
    kernel::{
        OUT_OF_ORDER,
        constant::{Constant, Feature},
        memory::Sizing,
    },
    options::{Functions, Level, List},
};

/// Time from a packet's receive timestamp to each layer of the receive path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if the signal is measured.
    pub enabled: bool,
    /// The layers to measure. A layer without a working hook has no points. The default is every layer at the level `detailed`, and
    /// `host`, `transport` and `socket_read` at `normal`.
    #[schemars(with = "List<Layer>", extend("examples" = [["host", "ip", "transport", "socket_enqueued", "socket_read"]]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<List<Layer>>,
    /// Additional layers: up to eight kernel functions with a packet (`struct sk_buff *`) as parameter, for example
    /// `ip_rcv_finish`. `undercurrent doctor` reports the functions that it cannot attach to, with the reason.
    pub extra_layers: Functions,
    /// Treatment of TCP reads that waited, or may have waited, for a lost or reordered segment. This time belongs to
    /// the network. `exclude` counts these reads at `socket_read` in `undercurrent.lost`, with the reason
    /// `head_of_line`.
    pub head_of_line_blocking: HeadOfLineBlocking,
}

/// Treatment of TCP reads that waited for a missing segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeadOfLineBlocking {
    /// These reads are excluded and counted as losses.
    #[default]
    Exclude,
    /// These reads are measured.
    Include,
}

impl Settings {
    /// Returns the constants of the programs.
    pub(super) fn constants(&self, sizing: &Sizing) -> Vec<Constant> {
        let excludes = [Layer::SocketEnqueued, Layer::SocketRead].into_iter().any(|layer| self.excludes_blocked(layer));
        let functions = sizing.by_function();
        vec![
            Constant::flag("signal.latency", self.enabled),
            Constant::flag("latency.host", self.enabled && self.layers().contains(Layer::Host))
                .requires(Feature::SocketOfPacket),
            Constant::flag("head_of_line.exclude", excludes).requires(Feature::Field(OUT_OF_ORDER)),
            Constant::size("extra.cell", functions.cell),
            Constant::size("extra.shard", functions.shard),
            Constant::size("extra.groups", functions.groups),
        ]
    }

    /// Sets the layers of a level, unless the configuration names them.
    pub(crate) fn set_level(&mut self, level: Level) {
        self.layers.get_or_insert_with(|| layers(level));
    }

    /// Returns the layers to measure.
    #[must_use]
    pub fn layers(&self) -> List<Layer> {
        self.layers.clone().unwrap_or_else(|| layers(Level::Normal))
    }

    /// Returns true if reads that waited for a missing segment are excluded at a layer.
    #[must_use]
    pub fn excludes_blocked(&self, at: Layer) -> bool {
        self.enabled && self.layers().contains(at) && self.head_of_line_blocking == HeadOfLineBlocking::Exclude
    }
}

/// Returns the layers of a level.
fn layers(level: Level) -> List<Layer> {
    match level {
        Level::Normal => List::some(|layer| matches!(layer, Layer::Host | Layer::Transport | Layer::SocketRead)),
        Level::Detailed => List::default(),
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            layers: None,
            extra_layers: Functions::default(),
            head_of_line_blocking: HeadOfLineBlocking::default(),
        }
    }
}
