//! The definition of a signal in the registry.

use crate::{
    LossConditions, OpenContext, OpenError, Settings, Signal,
    kernel::{
        Kernel,
        constant::Constant,
        hooks::Hook,
        memory::{PlannedMap, Sizing},
    },
    privileges::Task,
    sysfs::Meters,
    telemetry::Descriptor,
};

/// A limitation of a signal on this kernel or host, besides its hooks.
pub enum Caveat {
    /// A part of the signal is not measured.
    Partial(String),
    /// Nothing is measured.
    Unavailable(String),
    /// The host has nothing to measure.
    Idle(String),
}

/// Returns the limitations on this kernel and host, under a configuration.
pub type Caveats = fn(&Settings, &Kernel) -> Vec<Caveat>;

/// The inputs of a signal's constants.
pub struct ConstantContext<'a> {
    /// The settings of all signals.
    pub settings: &'a Settings,
    /// The parameters of the maps' sizes.
    pub sizing: &'a Sizing,
    /// The power meters of the machine.
    pub meters: &'a Meters,
}

/// The hooks without which a signal measures nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HooksNeeded {
    /// Every hook.
    All,
    /// At least one hook.
    Any,
    /// These hooks.
    Each(&'static [&'static Hook]),
    /// No hook: the signal has another source.
    None,
}

/// The definition of a signal.
pub struct Entry {
    /// The name in configuration, logs, status and docs.
    pub name: &'static str,
    /// A noun phrase without a final period.
    pub summary: &'static str,
    /// The metrics of the signal.
    pub metrics: &'static [&'static Descriptor],
    /// Returns the hooks that the signal requires under a configuration. [`Settings::complete`] requires every possible
    /// hook.
    pub hooks: fn(&Settings) -> Vec<&'static Hook>,
    /// The maps that its programs write, including maps that belong to other signals.
    pub maps: &'static [&'static PlannedMap],
    /// Returns the constants that its programs read: the switch of its handlers, and its settings. The symbols depend
    /// neither on the context nor on `enabled`.
    pub constants: fn(&ConstantContext<'_>) -> Vec<Constant>,
    /// Returns the values of `undercurrent.reason` that can occur under these conditions.
    pub losses: fn(&LossConditions) -> Vec<&'static str>,
    /// Whether the signal measures nothing if some of its hooks are unavailable.
    pub hooks_needed: HooksNeeded,
    /// True if the level `normal` leaves the signal out, unless its own key enables it.
    pub is_detail: bool,
    /// The tasks that need capabilities, besides loading and attaching programs.
    pub tasks: &'static [Task],
    /// Returns the limitations on this kernel and host.
    pub caveats: Caveats,
    /// Opens the signal.
    pub open: fn(&OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError>,
}

impl Entry {
    /// Returns the definition of a signal without hooks, maps and limitations. Every hook that is added is needed.
    #[must_use]
    pub const fn new(
        name: &'static str,
        summary: &'static str,
        metrics: &'static [&'static Descriptor],
        open: fn(&OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError>,
    ) -> Self {
        Self {
            name,
            summary,
            metrics,
            hooks: |_| Vec::new(),
            maps: &[],
            constants: |_| Vec::new(),
            losses: |_| Vec::new(),
            hooks_needed: HooksNeeded::All,
            is_detail: false,
            tasks: &[],
            caveats: |_, _| Vec::new(),
            open,
        }
    }
}
