//! Measures the cost of the kernel's network stack and exports it as OpenTelemetry.
//!
//! Data flows one way: `kernel` -> `signals` -> `telemetry` -> `export`. Each is a package below `receiver/`, and uses
//! only the packages that its `Cargo.toml` names.

pub mod catalogue;
pub mod cli;
pub mod config;
pub mod doctor;
pub mod exit;
pub mod flamegraph;
pub mod graph;
pub mod health;
pub mod listen;
pub mod logging;
pub mod outputs;
pub mod parts;
pub mod requirements;
pub mod sidecar;
#[cfg(test)]
#[path = "../tests/support/variants.rs"]
mod variants;
pub mod watchdog;

pub use undercurrent_base::{causes, descriptors, environment, files, namespaces, node, privileges, text};
pub use undercurrent_channel as channel;
pub use undercurrent_export as export;
pub use undercurrent_host::{cgroup, process_usage, sysfs};
pub use undercurrent_kernel as kernel;
pub use undercurrent_loader as loader;
pub use undercurrent_options as options;
pub use undercurrent_packets as packets;
pub use undercurrent_reader as reader;
pub use undercurrent_signals as signals;
pub use undercurrent_telemetry as telemetry;
pub use undercurrent_traceparent as traceparent;
pub use undercurrent_workloads as workloads;
