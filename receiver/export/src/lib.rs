//! Exports snapshots as OTLP, as OTLP/JSON lines, as a text table and on the screen of a terminal, and keeps the newest one for Prometheus.
//!
//! Each output runs in a separate task or thread, and subscribes to the [`Bus`]. If a receiver is slow or unreachable, its
//! output drops snapshots and counts them. Outputs never delay a measurement.

use undercurrent_base::{causes, files, text};
use undercurrent_telemetry as telemetry;

mod acknowledged;
mod bus;
mod encode;
mod encoding;
mod form;
mod health;
pub mod json;
pub mod otlp;
mod output;
mod output_file;
mod page;
pub mod prometheus;
pub mod report;
mod spans;
mod split;
mod statistics;
pub mod table;
pub mod terminal;
#[cfg(test)]
mod testing;
#[cfg(test)]
#[path = "../../tests/support/variants.rs"]
mod variants;
pub mod view;

pub use bus::{Bus, Published, Subscription, Topics};
pub use encoding::REQUEST_LIMIT;
pub use output::{Output, OutputFailed, Outputs};
pub use output_file::OutputFile;
pub use split::{Part, Requests, requests};
pub use statistics::Statistics;
