//! Shared parts of the tests: environments that clean up after use, traffic, and readers of counters.

#[path = "../../support/attached.rs"]
pub mod attached;
pub mod cells;
#[path = "../../support/cgroups.rs"]
pub mod cgroups;
pub mod churn;
#[path = "../../support/collector.rs"]
pub mod collector;
pub mod counters;
#[path = "../../truth/errors.rs"]
pub mod errors;
pub mod ftrace;
pub mod growth;
pub mod injection;
#[path = "../../support/line.rs"]
pub mod line;
pub mod load;
#[path = "../../support/namespace.rs"]
pub mod namespace;
pub mod options;
#[path = "../../support/processes.rs"]
pub mod processes;
pub mod ring;
#[path = "../../support/sidecar.rs"]
#[expect(dead_code, reason = "the hostile suite uses the rest")]
pub mod sidecar;
pub mod stamped;
#[path = "../../support/surroundings.rs"]
pub mod surroundings;
pub mod sysctl;
pub mod talk;
pub mod tcp;
pub mod truth;
#[path = "../../truth/table.rs"]
pub mod truths;
pub mod wire;
