//! `undercurrent.tcp.rtt`: the kernel's smoothed round-trip time of a connection, at each read or peek of its data.

use undercurrent_ebpf::abi::{latency::IpVersion, series::Series, workload::Slot};

use super::{switch, timings};

switch!("tcp_rtt");

/// Records a read of a connection `weight` times. The closures run only if the signal is enabled.
#[inline(always)]
pub fn read(
    rtt: impl FnOnce() -> Option<u64>,
    version: impl FnOnce() -> IpVersion,
    weight: u64,
    slot: impl FnOnce() -> Slot,
) {
    if !enabled() {
        return;
    }
    let Some(rtt) = rtt() else { return };
    // One branch per version, so that each has its histogram at a constant offset.
    match version() {
        IpVersion::Ipv4 => timings::record(Series::Rtt(IpVersion::Ipv4), rtt, weight, slot()),
        IpVersion::Ipv6 => timings::record(Series::Rtt(IpVersion::Ipv6), rtt, weight, slot()),
    }
}
