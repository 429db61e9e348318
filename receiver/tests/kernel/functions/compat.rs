//! System calls of 32-bit programs, which x86-64 offers 64-bit programs too.

use std::{
    arch::asm,
    net::UdpSocket,
    os::fd::{AsRawFd as _, RawFd},
    ptr,
    time::{Duration, Instant},
};

use super::{
    super::support::{
        surroundings::{alone, skip},
        wire::{Version, Wire},
    },
    UDP_RECEIVE, UDP_SEND, expect, start,
};

/// Numbers of `arch/x86/entry/syscalls/syscall_32.tbl`. No 64-bit call with the second number does network work.
const EXIT: u64 = 1;
const WRITE: u64 = 4;
const LENGTH: usize = 64;

/// Makes a system call of 32-bit programs.
///
/// # Safety
/// The arguments must be valid for the system call.
unsafe fn call(number: u64, arguments: [u64; 3]) -> i32 {
    let result: u64;
    // SAFETY: the compiler reserves rbx, which has its value again after the call. The kernel may change r8 to r11.
    unsafe {
        asm!(
            "xchg {first}, rbx",
            "int 0x80",
            "xchg {first}, rbx",
            first = inout(reg) arguments[0] => _,
            inlateout("rax") number => result,
            in("rcx") arguments[1],
            in("rdx") arguments[2],
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    result as i32
}

/// Returns false if this kernel ends a process that makes such a call.
fn has_calls() -> bool {
    // SAFETY: the child only exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the call does not return.
        unsafe { call(EXIT, [0; 3]) };
    }
    let mut status = 0;
    // SAFETY: the status outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status)
}

/// Returns memory that a pointer of 32 bits can address.
fn low_memory() -> u64 {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT);
    // SAFETY: a new mapping, which exists until the process ends.
    let memory = unsafe { libc::mmap(ptr::null_mut(), LENGTH, access, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    memory as u64
}

/// Sends datagrams for a while by the `write` of 32-bit programs.
fn flood(socket: RawFd, memory: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        // SAFETY: the kernel reads `LENGTH` bytes of the mapping.
        let written = unsafe { call(WRITE, [socket as u64, memory, LENGTH as u64]) };
        assert_eq!(usize::try_from(written), Ok(LENGTH), "{written}");
    }
}

#[test]
fn calls_of_32_bit_programs_are_network_work() {
    let Some(_alone) = alone("calls of 32-bit programs") else { return };
    if !has_calls() {
        return skip("calls of 32-bit programs: this kernel refuses them");
    }
    let memory = low_memory();
    let (sidecar, wire) = (start(), Wire::veth(Version::Ipv4));
    let from = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    let to = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    from.connect(to.local_addr().unwrap()).unwrap();
    expect(&sidecar, &[UDP_RECEIVE, UDP_SEND], &[], Version::Ipv4, || flood(from.as_raw_fd(), memory));
}
