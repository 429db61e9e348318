//! Measures the cost of the kernel's network stack and exports it as OpenTelemetry.
//!
//! Data flows one way: `kernel` -> `signals` -> `telemetry` -> `export`. `tests/modules.rs` has the order of all
//! modules.

pub mod causes;
pub mod cgroup;
pub mod channel;
pub mod cli;
pub mod config;
pub mod descriptors;
pub mod doctor;
pub mod environment;
pub mod exit;
pub mod export;
pub mod files;
pub mod flamegraph;
pub mod kernel;
pub mod logging;
pub mod namespaces;
pub mod node;
pub mod options;
pub mod outputs;
pub mod parts;
pub mod privileges;
pub mod reader;
pub mod requirements;
pub mod sidecar;
pub mod signals;
pub mod sysfs;
pub mod telemetry;
mod text;
pub mod traceparent;
pub mod watchdog;
pub mod workloads;
