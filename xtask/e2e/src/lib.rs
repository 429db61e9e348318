//! Programs that tests and benchmarks start: the OpenTelemetry Collector, Jaeger and Prometheus.

mod cached;
pub mod collector;
mod go;
pub mod grafana;
pub mod helm;
pub mod jaeger;
mod module;
pub mod ports;
pub mod prometheus;
mod server;
