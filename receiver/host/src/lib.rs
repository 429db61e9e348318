//! Files of the host: cgroups, power meters and the topology of CPUs.

pub mod cgroup;
pub mod sysfs;

use undercurrent_base::{files, namespaces};
use undercurrent_telemetry as telemetry;
