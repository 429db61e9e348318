//! From snapshots to whoever wants them: OTLP, OTLP/JSON lines, a live table.
//!
//! Every output runs beside the tick, in a task or thread of its own behind a mailbox for one snapshot. A slow or dead
//! receiver costs snapshots, which are counted, and never holds up a measurement.

mod encode;
mod health;
pub mod json;
mod mailbox;
pub mod otlp;
mod output;
mod split;
mod statistics;
pub mod table;
#[cfg(test)]
mod testing;

pub use output::{Output, OutputFailed, Outputs};
pub use split::{Part, REQUEST_LIMIT, Requests, requests};
pub use statistics::Statistics;
