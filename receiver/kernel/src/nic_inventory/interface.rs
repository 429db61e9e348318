//! Discovery of network interfaces with NICs that timestamp received packets. It does not enable timestamps.

use std::{
    ffi::c_char,
    fs, io,
    net::{Ipv4Addr, UdpSocket},
    os::{
        fd::{AsFd as _, AsRawFd as _},
        unix::fs::MetadataExt as _,
    },
};

use libc::{hwtstamp_config, ifreq};
use rustix::net::netdevice::name_to_index;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi;

/// `ETHTOOL_GET_TS_INFO` of `include/uapi/linux/ethtool.h`.
const GET_TIMESTAMPING: u32 = 0x41;
/// `HWTSTAMP_FILTER_NONE` of `include/uapi/linux/net_tstamp.h`.
const NONE: i32 = 0;

/// An interface with a NIC that timestamps all or some received packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The name of the interface.
    pub name: String,
    /// The index in the interface's network namespace.
    pub index: u32,
    /// The number of the NIC's clock (PHC); `None` if the driver registers none.
    pub clock: Option<u32>,
}

impl Interface {
    /// Returns the map key of the interface in the network namespace with this inode.
    pub(crate) const fn within(&self, namespace: u32) -> abi::interface::Interface {
        abi::interface::Interface { namespace, index: self.index }
    }
}

/// `struct ethtool_ts_info`.
#[repr(C)]
#[derive(Default)]
struct TimestampingInfo {
    command: u32,
    sources: u32,
    clock: i32,
    transmit: [u32; 4],
    receive: [u32; 4],
}

/// Returns the interfaces of this process's network namespace with NICs that timestamp, sorted by index.
///
/// # Errors
/// If interfaces cannot be listed.
pub fn with_timestamps() -> io::Result<Vec<Interface>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let names = procfs::net::dev_status().map_err(io::Error::other)?.into_keys();
    let interface = |name: String| {
        timestamps_enabled(&socket, &name).then_some(())?;
        // The interface may have been removed since the listing.
        let index = name_to_index(socket.as_fd(), &name).ok()?;
        Some(Interface { clock: clock(&socket, &name), name, index })
    };
    let mut found: Vec<_> = names.filter_map(interface).collect();
    found.sort_by_key(|interface| interface.index);
    Ok(found)
}

/// Returns the inode of this process's network namespace.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn namespace() -> io::Result<u32> {
    u32::try_from(fs::metadata("/proc/thread-self/ns/net")?.ino()).map_err(io::Error::other)
}

/// Returns true if receive timestamps are enabled on a NIC. Most drivers do not support the request.
fn timestamps_enabled(socket: &UdpSocket, name: &str) -> bool {
    let mut settings = hwtstamp_config { flags: 0, tx_type: 0, rx_filter: NONE };
    request_driver(socket, libc::SIOCGHWTSTAMP as libc::Ioctl, name, &mut settings) && settings.rx_filter != NONE
}

/// Returns the number of a NIC's clock.
fn clock(socket: &UdpSocket, name: &str) -> Option<u32> {
    let mut info = TimestampingInfo { command: GET_TIMESTAMPING, ..TimestampingInfo::default() };
    let answered = request_driver(socket, libc::SIOCETHTOOL as libc::Ioctl, name, &mut info);
    u32::try_from(info.clock).ok().filter(|_| answered)
}

/// Sends an ioctl to an interface's driver, which fills `answer`. Returns true on success.
fn request_driver<T>(socket: &UdpSocket, request: libc::Ioctl, name: &str, answer: &mut T) -> bool {
    // SAFETY: `ifreq` contains only integers and raw pointers, for which zero bytes are valid.
    let mut of: ifreq = unsafe { std::mem::zeroed() };
    // The last byte remains zero and terminates the name.
    let room = of.ifr_name.len() - 1;
    of.ifr_name.iter_mut().zip(name.bytes().take(room)).for_each(|(to, from)| *to = from as c_char);
    of.ifr_ifru.ifru_data = (&raw mut *answer).cast();
    // SAFETY: callers pass an `answer` of the type that the request writes, and both structs outlive the call.
    unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut of) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_missing_interfaces_have_no_timestamps() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        assert!(!timestamps_enabled(&socket, "lo"));
        // The loopback driver reports no clock; the ioctl fails for a missing interface.
        assert_eq!([clock(&socket, "lo"), clock(&socket, "no such interface")], [None, None]);
        assert!(!timestamps_enabled(&socket, "no such interface"));
    }

    #[test]
    fn found_interfaces_exist() {
        for interface in with_timestamps().expect("a list") {
            assert!(interface.index > 0 && !interface.name.is_empty(), "{interface:?}");
        }
        assert!(namespace().expect("a namespace") > 0);
    }
}
