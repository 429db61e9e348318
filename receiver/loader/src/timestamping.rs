//! Receive timestamps, which the kernel takes only while a socket requests them.

use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
    os::fd::AsRawFd,
};

/// A socket that keeps receive timestamps enabled on the whole host.
///
/// `SOF_TIMESTAMPING_RX_SOFTWARE` makes the kernel call `net_enable_timestamp`, which is global. The kernel undoes the
/// call when the socket is closed, also if the sidecar is killed.
pub struct Timestamping(#[expect(dead_code, reason = "held for its effect")] UdpSocket);

impl Timestamping {
    /// Enables receive timestamps. The kernel applies the change within milliseconds.
    ///
    /// # Errors
    /// If the kernel refuses the socket or the option.
    pub fn hold() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let flags: libc::c_uint = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        // SAFETY: the option takes a pointer to an integer of the given size, and the integer outlives the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMPING,
                (&raw const flags).cast(),
                size_of_val(&flags) as libc::socklen_t,
            )
        };
        if result == 0 { Ok(Self(socket)) } else { Err(io::Error::last_os_error()) }
    }
}
