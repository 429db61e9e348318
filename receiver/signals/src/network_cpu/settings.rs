//! The settings of `network_cpu`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::cost::exact;

use crate::{
    kernel::{constant::Constant, memory::Sizing},
    options::Level,
};

/// CPU time of the network stack, by event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if the signal is measured.
    pub enabled: bool,
    /// The events to measure exactly: `softirqs`, `all` (socket calls and threads of io_uring too, with a program at each switch
    /// between tasks), or `none`. The default is `softirqs` at the level `detailed`, and `none` at `normal`.
    #[schemars(with = "Exact", extend("examples" = ["softirqs"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<Exact>,
    /// True if every CPU has points of its own (`cpu.logical_number`) for softirqs. The receive softirq is then not divided over
    /// workloads.
    pub per_cpu: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { enabled: true, exact: None, per_cpu: false }
    }
}

impl Settings {
    /// Returns settings that require every possible hook.
    #[must_use]
    pub fn complete() -> Self {
        Self { exact: Some(Exact::All), ..Self::default() }
    }

    /// Sets the exact events of a level, unless the configuration names them.
    pub(crate) fn set_level(&mut self, level: Level) {
        self.exact.get_or_insert(match level {
            Level::Normal => Exact::None,
            Level::Detailed => Exact::Softirqs,
        });
    }

    /// Returns the events to measure exactly.
    #[must_use]
    pub const fn exact(&self) -> Exact {
        match self.exact {
            Some(exact) => exact,
            None => Exact::None,
        }
    }

    /// Returns true if network softirqs are measured.
    #[must_use]
    pub fn measures_softirqs(&self) -> bool {
        self.enabled && self.exact() != Exact::None
    }

    /// Returns true if socket calls are measured.
    #[must_use]
    pub fn measures_calls(&self) -> bool {
        self.enabled && self.exact() == Exact::All
    }

    /// Returns the constants of the programs.
    pub(super) fn constants(&self, sizing: &Sizing) -> Vec<Constant> {
        let (measured, is_attributed) = (self.measured(), sizing.workloads.is_some());
        vec![
            Constant::number("network_cpu.exact", measured),
            Constant::flag("network_cpu.divides", measured != exact::NONE && is_attributed),
        ]
    }

    /// Returns the number of the exact events for the eBPF programs, one of [`exact`].
    const fn measured(&self) -> u32 {
        match self.exact() {
            _ if !self.enabled => exact::NONE,
            Exact::None => exact::NONE,
            Exact::Softirqs => exact::SOFTIRQS,
            Exact::All => exact::ALL,
        }
    }
}

/// The network events that are measured exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exact {
    /// Nothing.
    None,
    /// Network softirqs.
    Softirqs,
    /// Network softirqs, socket calls and threads of io_uring.
    All,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabled_signal_measures_nothing() {
        assert_eq!(Settings::complete().measured(), exact::ALL);
        assert_eq!(Settings { enabled: false, ..Settings::complete() }.measured(), exact::NONE);
    }
}
