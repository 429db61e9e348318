//! Reads TCP's state of a connection (`struct tcp_info` in `include/uapi/linux/tcp.h`).

use std::{net::TcpStream, os::fd::AsRawFd as _};

/// The offset of `tcpi_rtt`, which is in microseconds.
pub const RTT: usize = 68;
/// The offset of the lower half of `tcpi_bytes_sent`, with retransmitted bytes, since Linux 4.19.
pub const BYTES_SENT: usize = if cfg!(target_endian = "big") { 204 } else { 200 };
/// The offset of `tcpi_segs_in`, since Linux 4.2.
pub const SEGMENTS_IN: usize = 140;
/// The offset of `tcpi_data_segs_in`, since Linux 4.6.
pub const DATA_SEGMENTS_IN: usize = 152;

/// Returns the 32-bit word at an offset.
pub fn information(stream: &TcpStream, offset: usize) -> u32 {
    let mut information = [0_u8; 256];
    let mut length = libc::socklen_t::try_from(information.len()).unwrap();
    let (buffer, size) = (information.as_mut_ptr().cast(), &raw mut length);
    // SAFETY: the call writes at most `length` bytes into the live buffer, and then the actual length.
    let result = unsafe { libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, buffer, size) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    assert!(length as usize >= offset + 4, "tcp_info of this kernel ends before byte {offset}");
    u32::from_ne_bytes(information[offset..offset + 4].try_into().unwrap())
}
