//! Energy by workload. User space divides it; the programs only provide [the time of interruptions](super::workload_cpu).

super::switch!("energy");
