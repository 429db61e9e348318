//! Reads with the kernel's receive timestamps.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd as _},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use super::options;

/// Enables receive timestamps on a socket.
pub fn ask(socket: &impl AsFd) {
    options::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32).unwrap();
}

/// Reads from a socket. Returns the number of bytes, and the age of the last packet among them.
pub fn read(socket: &impl AsFd, buffer: &mut [u8]) -> (usize, Duration) {
    let mut control = [0_u64; 16];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: `msghdr` consists of integers and pointers, so zeros are valid.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the header points to buffers that outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(length).unwrap_or_else(|_| panic!("{}", io::Error::last_os_error()));
    let now = clock_gettime(ClockId::Realtime);
    // SAFETY: the kernel has initialized the control messages within the header's `msg_controllen`.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: `CMSG_FIRSTHDR` returns null or a pointer into the initialized control messages.
    let first = unsafe { first.as_ref() }.expect("a stamp");
    assert_eq!((first.cmsg_level, first.cmsg_type), (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS));
    // SAFETY: `first` is a control message that the kernel has written.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: the data of an `SCM_TIMESTAMPNS` message is a `timespec`.
    let stamp = unsafe { data.cast::<libc::timespec>().read_unaligned() };
    let nanoseconds = (now.tv_sec - stamp.tv_sec) * 1_000_000_000 + (now.tv_nsec - stamp.tv_nsec);
    (length, Duration::from_nanos(u64::try_from(nanoseconds).expect("a stamp of the past")))
}
