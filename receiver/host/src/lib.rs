//! Files of the host: cgroups, power meters, the topology of CPUs, and counters of the receive softirq and of threads.

pub mod cgroup;
pub mod ksoftirqd;
pub mod load;
pub mod process_usage;
pub mod softnet;
pub mod sysfs;

use undercurrent_base::{files, namespaces};
use undercurrent_telemetry as telemetry;
