//! What an administrator can set: the file, its errors, its schema and reference, and what comes out of flags,
//! environment and file together.

mod error;
mod file;
mod filter;
mod functions;
mod grouping;
mod hooks;
mod load;
pub(crate) mod nearest;
mod output;
mod path;
mod problem;
mod reference;
mod sampling;
mod schema;
mod settings;
mod signals;
mod transmit;
mod units;
mod workloads;

pub use error::{ConfigError, Position};
pub use file::{Compression, File, Headers, Otlp, Resource};
pub use filter::{Cgroup, Filter, Interface, Namespace};
pub use functions::Functions;
pub use grouping::{Dimensions, Group, GroupLimit};
pub use hooks::{Hooks, Means};
pub use load::SIZE_LIMIT;
pub use output::{Destination, Output, OutputError, Outputs};
pub use path::AbsolutePath;
pub use reference::markdown;
pub use sampling::{Sampling, SamplingError, Weight};
pub use schema::{EXAMPLE, schema, signal_names};
pub use settings::{Flags, Settings};
pub use signals::{HeadOfLineBlocking, Latency, Layers, NetworkCpu, ReceiveWait, Signals, SoftirqWait, Softnet};
pub use units::{Interval, MemoryLimit, Span, UnitError};
pub use workloads::Workloads;
