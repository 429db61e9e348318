//! Types of configuration values. Each type parses and validates its text, and describes it in the JSON schema.

use undercurrent_telemetry as telemetry;

mod address;
mod filter;
mod functions;
mod grouping;
mod hooks;
mod level;
mod list;
pub mod nearest;
mod networks;
mod output;
mod packets;
mod path;
mod power;
#[cfg(test)]
mod read_back;
mod sampling;
mod separation;
mod switch;
mod units;
#[cfg(test)]
#[path = "../../tests/support/variants.rs"]
mod variants;
mod workloads;

pub use address::{ListenAddress, LocalAddress};
pub use filter::{Cgroup, Filter, Interface, Namespace};
pub use functions::{FunctionName, Functions};
pub use grouping::{Dimensions, Group, GroupLimit};
pub use hooks::{AttachKind, Hooks};
pub use level::{Internal, Level};
pub use list::{List, Named};
pub use networks::{Networks, Prefix};
pub use output::{Destination, Output, OutputError, Outputs};
pub use packets::Packets;
pub use path::AbsolutePath;
pub use power::{Power, PowerError, PowerRange};
pub use sampling::{Sampling, SamplingError, Weight};
pub use separation::Separation;
pub use switch::{DetailSwitch, Switch};
pub use units::{Interval, MemoryLimit, Span, UnitError};
pub use workloads::Workloads;
