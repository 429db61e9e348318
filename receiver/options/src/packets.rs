//! The settings that all packet signals share.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use undercurrent_ebpf::abi::histogram::MAX_SCALE;

use super::{Filter, Group, Sampling};
use crate::telemetry::Scale;

/// The packets that `latency`, `receive_wait`, `transmit` and `receive_driver` measure, and their histograms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Packets {
    /// The share of packets that is measured: `all`; one in a power of two, such as `1/16`; or `adaptive`: all packets up to 5 000
    /// packets a second on the busiest CPU, and above that rate one in a power of two, at most 2 500 a second. A packet is measured
    /// at every layer or at none. A measured packet counts for the packets that are left out. `--sampling` takes precedence.
    pub sampling: Sampling,
    /// The packets to measure. All packets by default.
    pub filter: Filter,
    /// Grouping keys besides workload and IP version.
    pub group: Group,
    /// The resolution of the histograms of eBPF programs: the upper bound of a bucket is 2^(2^-scale) times its lower bound. 0 doubles, 3 is the
    /// finest.
    #[serde(serialize_with = "write_scale", deserialize_with = "read_scale")]
    #[schemars(with = "u8", range(max = MAX_SCALE))]
    pub scale: Scale,
}

impl Default for Packets {
    fn default() -> Self {
        Self {
            sampling: Sampling::default(),
            filter: Filter::default(),
            group: Group::default(),
            scale: Scale::DEFAULT,
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
