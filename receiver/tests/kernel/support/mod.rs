//! What the tests share: surroundings that clean up after themselves, traffic, and readers of what was counted.

pub mod cells;
#[path = "../../support/cgroups.rs"]
pub mod cgroups;
pub mod churn;
pub mod counters;
pub mod ftrace;
pub mod injection;
pub mod line;
pub mod load;
pub mod namespace;
pub mod options;
#[path = "../../support/processes.rs"]
pub mod processes;
pub mod ring;
pub mod sidecar;
pub mod stamped;
pub mod surroundings;
pub mod talk;
pub mod tcp;
pub mod wire;
