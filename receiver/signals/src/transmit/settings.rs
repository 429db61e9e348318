//! The settings of `transmit`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::transmit::TransmitLayer;

use crate::{kernel::constant::Constant, options::List};

/// Time that packets spend in each stage of the transmit path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if the signal is measured. The default is true at the level `detailed`, and false at `normal`.
    #[schemars(with = "bool", extend("examples" = [true]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The stages to measure: `stack` (from TCP or UDP to the qdisc), `qdisc` (from there to the driver) and `device` (until the driver
    /// frees the packet). The programs of `device` run for every freed packet, received packets included.
    pub stages: List<TransmitLayer>,
}

impl Settings {
    /// Returns the constants of the programs.
    pub(super) fn constants(&self) -> Vec<Constant> {
        let stages = self.stages.iter().map(TransmitLayer::bit).sum();
        vec![
            Constant::flag("signal.transmit", self.enabled.unwrap_or_default()),
            Constant::number("transmit.layers", stages),
        ]
    }
}
