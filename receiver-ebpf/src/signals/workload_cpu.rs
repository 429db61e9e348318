//! The switch of `undercurrent.cpu.time`, which needs the time that network softirqs take from tasks.

use super::switch;

switch!("workload_cpu");
