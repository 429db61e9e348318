//! Network interfaces whose NICs stamp received packets. Nothing is switched on here.

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
const GET_STAMPING: u32 = 0x41;
/// `HWTSTAMP_FILTER_NONE` of `include/uapi/linux/net_tstamp.h`.
const NONE: i32 = 0;

/// An interface whose NIC stamps packets that it receives, all or some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index in its namespace.
    pub index: u32,
    /// The number of the NIC's clock; absent where the driver offers none.
    pub clock: Option<u32>,
}

impl Interface {
    /// What programs know it by, in a namespace of this inode.
    pub(super) const fn within(&self, namespace: u32) -> abi::interface::Interface {
        abi::interface::Interface { namespace, index: self.index }
    }
}

/// `struct ethtool_ts_info`.
#[repr(C)]
#[derive(Default)]
struct Stamping {
    command: u32,
    sources: u32,
    clock: i32,
    transmit: [u32; 4],
    receive: [u32; 4],
}

/// The interfaces of this process's namespace whose NICs stamp, by their indices.
///
/// # Errors
/// Where interfaces cannot be listed.
pub fn stamping() -> io::Result<Vec<Interface>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let names = procfs::net::dev_status().map_err(io::Error::other)?.into_keys();
    let interface = |name: String| {
        stamps(&socket, &name).then_some(())?;
        // One that is gone meanwhile is none.
        let index = name_to_index(socket.as_fd(), &name).ok()?;
        Some(Interface { clock: clock(&socket, &name), name, index })
    };
    let mut found: Vec<_> = names.filter_map(interface).collect();
    found.sort_by_key(|interface| interface.index);
    Ok(found)
}

/// The inode of this process's network namespace.
///
/// # Errors
/// Where `/proc` does not say.
pub fn namespace() -> io::Result<u32> {
    u32::try_from(fs::metadata("/proc/thread-self/ns/net")?.ino()).map_err(io::Error::other)
}

/// Whether a NIC stamps what it receives, as somebody switched on. Most drivers have no answer.
fn stamps(socket: &UdpSocket, name: &str) -> bool {
    let mut settings = hwtstamp_config { flags: 0, tx_type: 0, rx_filter: NONE };
    ask(socket, libc::SIOCGHWTSTAMP as libc::Ioctl, name, &mut settings) && settings.rx_filter != NONE
}

/// The number of a NIC's clock.
fn clock(socket: &UdpSocket, name: &str) -> Option<u32> {
    let mut stamping = Stamping { command: GET_STAMPING, ..Stamping::default() };
    let answered = ask(socket, libc::SIOCETHTOOL as libc::Ioctl, name, &mut stamping);
    u32::try_from(stamping.clock).ok().filter(|_| answered)
}

/// Has an interface's driver fill what a request is for; whether it did.
fn ask<T>(socket: &UdpSocket, request: libc::Ioctl, name: &str, answer: &mut T) -> bool {
    // SAFETY: numbers and a pointer, which may all be zero.
    let mut of: ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays a zero.
    let room = of.ifr_name.len() - 1;
    of.ifr_name.iter_mut().zip(name.bytes().take(room)).for_each(|(to, from)| *to = from as c_char);
    of.ifr_ifru.ifru_data = (&raw mut *answer).cast();
    // SAFETY: both requests take an `ifreq` whose data is of the answer's type, and write within that.
    unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut of) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_of_software_stamps_nothing() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        assert!(!stamps(&socket, "lo"));
        // The loopback's driver says that it has no clock; to no interface nobody says anything.
        assert_eq!([clock(&socket, "lo"), clock(&socket, "no such interface")], [None, None]);
        assert!(!stamps(&socket, "no such interface"));
    }

    #[test]
    fn every_interface_found_is_there() {
        for interface in stamping().expect("a list") {
            assert!(interface.index > 0 && !interface.name.is_empty(), "{interface:?}");
        }
        assert!(namespace().expect("a namespace") > 0);
    }
}
