//! Selection of packets for all signals: adaptive sampling, the filter, and groups besides workloads.

use undercurrent_base::text;
use undercurrent_host::softnet;
use undercurrent_kernel as kernel;
use undercurrent_options as options;
use undercurrent_reader as reader;
use undercurrent_telemetry as telemetry;
use undercurrent_workloads as workloads;

pub mod attributes;
mod filter;
mod grouping;
mod sampling;

pub use filter::{FilterUpdater, filter_keys};
pub use grouping::{GroupWords, Grouping, LiveGroup, SharedGrouping, loss_reasons};
pub use sampling::SamplingController;
