//! The states of hooks and signals.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;

/// The status of a hook or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All events are measured.
    Healthy,
    /// This machine cannot produce the events. Only signals have this status.
    Idle,
    /// Some events are missed.
    Degraded,
    /// No events are measured.
    Unavailable,
}

impl Status {
    /// The statuses of a signal.
    pub const ALL: [Self; 4] = [Self::Healthy, Self::Degraded, Self::Unavailable, Self::Idle];
    /// The statuses of a hook.
    pub const OF_HOOKS: [Self; 3] = [Self::Healthy, Self::Degraded, Self::Unavailable];

    /// Returns the name in messages and metric attributes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Idle => "idle",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The status of a signal, with reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SignalStatus {
    /// The name of the signal.
    pub signal: &'static str,
    /// [`Status::Unavailable`] also if the configuration disables the signal; `reasons` then contains that.
    pub status: Status,
    /// True if the configuration enables the signal.
    pub enabled: bool,
    /// The reasons why the signal is not healthy.
    pub reasons: Vec<String>,
}

/// The result of attaching a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The hook: its name, or the function that the user named.
    pub hook: Cow<'static, str>,
    /// The status of the hook.
    pub status: Status,
    /// The attached alternate, or the other hook that serves this one.
    pub by: Option<Cow<'static, str>>,
    /// The symbols of the attached programs.
    pub programs: Vec<Cow<'static, str>>,
    /// The packets that the attached alternate misses.
    pub leaves_out: Option<Cow<'static, str>>,
    /// The refusals, in the order of the alternates.
    pub refusals: Vec<Refusal>,
}
