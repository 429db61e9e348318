//! The constants of the programs. The owner of a setting computes its constants; the loader writes them into the
//! instructions before load.

use serde::{Deserialize, Serialize};

use crate::symbol::{self, Symbol};

/// A constant of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constant {
    /// The symbol that a program declares with `constants!` or `switch!`.
    #[serde(deserialize_with = "symbol::deserialize")]
    pub symbol: Symbol,
    /// The number.
    pub value: u32,
    /// A feature of the kernel without which the number is zero.
    pub requires: Option<Feature>,
}

/// A feature that the running kernel may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Feature {
    /// A field that programs read, by its symbol.
    Field(#[serde(deserialize_with = "symbol::deserialize")] Symbol),
    /// Programs of tracepoints can read the payload of packets (`bpf_dynptr_from_skb`).
    PacketPayload,
    /// Programs of a cgroup can read the receiving socket of a packet with its kernel type (`bpf_cast_to_kern_ctx`), and may be attached.
    SocketOfPacket,
}

impl Constant {
    /// Returns a constant for a number.
    #[must_use]
    pub const fn number(symbol: &'static str, value: u32) -> Self {
        Self { symbol, value, requires: None }
    }

    /// Returns a constant for a condition.
    #[must_use]
    pub const fn flag(symbol: &'static str, value: bool) -> Self {
        Self::number(symbol, value as u32)
    }

    /// Returns a constant for a count or a size; [`u32::MAX`] for larger ones.
    #[must_use]
    pub fn size(symbol: &'static str, value: usize) -> Self {
        Self::number(symbol, u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// Makes the number zero on kernels without a feature.
    #[must_use]
    pub const fn requires(self, feature: Feature) -> Self {
        Self { requires: Some(feature), ..self }
    }
}
