//! Receive timestamps, which the kernel takes only while a socket asks for them.

use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
    os::fd::AsRawFd,
};

/// Holds receive timestamping on for the whole host.
///
/// `SOF_TIMESTAMPING_RX_SOFTWARE` makes the kernel call `net_enable_timestamp`, whose switch is global; it goes with the
/// socket, so that nothing stays on when the sidecar is killed.
pub struct Timestamping(#[expect(dead_code, reason = "held for its effect")] UdpSocket);

impl Timestamping {
    /// Switches timestamping on. It takes effect within milliseconds.
    ///
    /// # Errors
    /// The kernel's refusal of a socket or of the option.
    pub fn hold() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let flags: libc::c_uint = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        // SAFETY: the option takes a pointer to an integer of the given size, which lives through the call.
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
