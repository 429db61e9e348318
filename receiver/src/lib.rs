//! Undercurrent measures what the kernel's network stack costs and exports it as OpenTelemetry.
//!
//! Data flows one way: `kernel` -> `signals` -> `telemetry` -> `export`.

pub mod kernel;
pub mod telemetry;
