//! The system calls that can do network work.

use undercurrent_ebpf::abi::sample::CALLS;

/// Numbers of system calls on this architecture. `close`, `dup3` and `exit` close sockets, `ioctl` reads and writes sockets of
/// `AF_PACKET` and tun devices, `preadv` and its relatives read and write tun devices, and `epoll_pwait` and its relatives poll NICs (busy
/// polling).
const NETWORK: &[libc::c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_connect,
    libc::SYS_dup3,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getsockopt,
    libc::SYS_io_uring_enter,
    libc::SYS_ioctl,
    libc::SYS_listen,
    libc::SYS_ppoll,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pselect6,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_write,
    libc::SYS_writev,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
];

/// Returns 1 for each system call that can do network work, by its number.
pub fn network() -> [u8; CALLS] {
    let mut calls = [0; CALLS];
    for call in NETWORK {
        if let Some(entry) = usize::try_from(*call).ok().and_then(|call| calls.get_mut(call)) {
            *entry = 1;
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_an_entry() {
        let calls = network();
        assert_eq!(calls.iter().filter(|call| **call == 1).count(), NETWORK.len());
        let listed = |call: libc::c_long| calls[usize::try_from(call).expect("a number")];
        assert_eq!([libc::SYS_sendto, libc::SYS_futex].map(listed), [1, 0]);
        let later = [libc::SYS_epoll_pwait2, libc::SYS_preadv2, libc::SYS_pwritev2];
        assert_eq!(later.map(listed), [1; 3]);
    }
}
