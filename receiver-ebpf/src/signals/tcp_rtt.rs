//! `undercurrent.tcp.rtt`: the kernel's smoothed round-trip time of a connection, whenever its data is read, or looked at before it is.

use undercurrent_ebpf::abi::{
    latency::{Network, Series},
    workload::Slot,
};

use super::{switch, timings};

switch!("tcp_rtt");

/// Data of a connection was read, which stands for so many reads. What is asked of it is asked only where somebody wants to know.
#[inline(always)]
pub fn read(
    rtt: impl FnOnce() -> Option<u64>,
    network: impl FnOnce() -> Network,
    weight: u64,
    slot: impl FnOnce() -> Slot,
) {
    if !enabled() {
        return;
    }
    let Some(rtt) = rtt() else { return };
    // A branch for each version, so that each has its histogram at a constant offset.
    match network() {
        Network::Ipv4 => timings::record(Series::Rtt(Network::Ipv4), rtt, weight, slot()),
        Network::Ipv6 => timings::record(Series::Rtt(Network::Ipv6), rtt, weight, slot()),
    }
}
