//! The sidecar's own binary against the running kernel: real packets between network namespaces, and figures that the
//! kernel counted itself. The same tests run on this machine and, by `cargo xtask test --matrix`, in virtual machines under other
//! kernels. They need root.
#![expect(clippy::unwrap_used, reason = "a test that panics says where it failed")]

mod busy;
mod churn;
mod clock;
mod conditions;
mod cpu;
mod doctor;
mod ending;
mod extra;
mod filters;
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
mod resolution;
mod sampling;
mod softirq;
mod softnet;
mod support;
mod transmit;
mod waits;
mod ways;
mod workloads;
