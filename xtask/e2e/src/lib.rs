//! The OpenTelemetry Collector that tests and benchmarks start.

pub mod collector;
