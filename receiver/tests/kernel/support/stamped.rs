//! Reads that say when the kernel received what they return.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd as _},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use super::options;

/// Has reads of a socket say so.
pub fn ask(socket: &impl AsFd) {
    options::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32).unwrap();
}

/// Reads, and says how many bytes that were and how long ago the last packet of them had been received.
pub fn read(socket: &impl AsFd, buffer: &mut [u8]) -> (usize, Duration) {
    let mut control = [0_u64; 16];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: zeros are a message header without anything.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the header describes memory that outlives the call.
    let length = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(length).unwrap_or_else(|_| panic!("{}", io::Error::last_os_error()));
    let now = clock_gettime(ClockId::Realtime);
    // SAFETY: the kernel has written the control messages that the header tells of.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: as above.
    let first = unsafe { first.as_ref() }.expect("a stamp");
    assert_eq!((first.cmsg_level, first.cmsg_type), (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS));
    // SAFETY: as above.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: such a message holds a `timespec`.
    let stamp = unsafe { data.cast::<libc::timespec>().read_unaligned() };
    let nanoseconds = (now.tv_sec - stamp.tv_sec) * 1_000_000_000 + (now.tv_nsec - stamp.tv_nsec);
    (length, Duration::from_nanos(u64::try_from(nanoseconds).expect("a stamp of the past")))
}
