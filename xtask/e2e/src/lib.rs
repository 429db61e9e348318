//! Programs that tests and benchmarks start: the OpenTelemetry Collector and Prometheus.

mod cached;
pub mod collector;
mod go;
mod ports;
pub mod prometheus;
