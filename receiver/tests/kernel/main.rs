//! Tests of the sidecar's binary with the running kernel: packets pass between network namespaces, and the
//! exported values are compared with the kernel's counters. `cargo xtask test --matrix` also runs these tests in
//! virtual machines with other kernels. The tests need root.
#![expect(clippy::unwrap_used, reason = "a test that panics says where it failed")]

mod busy;
mod calls;
mod churn;
mod clock;
mod conditions;
mod cpu;
mod devices;
mod doctor;
mod ending;
mod energy;
mod entries;
mod every_signal;
mod extra;
mod filters;
mod forged_times;
mod forwarded;
mod functions;
mod grouping;
mod head_of_line;
mod instances;
mod internal;
mod known;
mod kprobes;
mod latency;
mod lines;
mod nic_clocks;
mod nic_timestamps;
mod peeks;
mod quantiles;
mod readers;
mod resolution;
mod sampling;
mod screen;
mod segments;
mod shipped;
mod slow;
mod softirq;
mod softnet;
mod support;
mod transmit;
mod waits;
mod ways;
mod workloads;
