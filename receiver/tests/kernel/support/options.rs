//! Socket options.

use std::{
    io,
    mem::size_of,
    os::fd::{AsFd, AsRawFd as _},
};

/// Sets an option with a value of the type that the kernel expects.
pub fn set<T>(socket: &impl AsFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<T>()).unwrap();
    // SAFETY: the call reads `size_of::<T>()` bytes of a live value.
    let result =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
