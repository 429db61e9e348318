//! Departure times that a sender forges (`SO_TXTIME`).

use std::{io, net::UdpSocket, os::fd::AsRawFd as _, time::Duration};

use super::{
    support::{
        options,
        sidecar::Sidecar,
        surroundings::{alone, often, patience, skipped},
        wire::{Version, Wire},
    },
    transmit::{DURATION as SENT, acquaint},
    waits::between,
};

const RECEIVED: &str = "undercurrent.network.receive.duration";
/// Datagrams with each time.
const DATAGRAMS: usize = 20;
/// Clocks of departure times.
const CLOCKS: [libc::clockid_t; 3] = [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME, libc::CLOCK_TAI];
/// Nanoseconds.
const HOUR: u64 = 3_600_000_000_000;
/// The forged time that is nearest to the present, in nanoseconds from it.
const NEAREST: u64 = HOUR / 60;

/// Returns the time of a clock in nanoseconds.
fn now(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the structure.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// A control message with a departure time (`cmsg(3)`). The time follows the header without a gap on 64-bit machines.
#[repr(C)]
struct Departure {
    header: libc::cmsghdr,
    time: u64,
}

/// Sends a byte with a departure time.
fn send(socket: &UdpSocket, time: u64) -> io::Result<()> {
    let mut byte = 0x55_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let (cmsg_len, cmsg_level, cmsg_type) = (size_of::<Departure>(), libc::SOL_SOCKET, libc::SCM_TXTIME);
    let mut control = Departure { header: libc::cmsghdr { cmsg_len, cmsg_level, cmsg_type }, time };
    let message = libc::msghdr {
        msg_name: std::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: &raw mut part,
        msg_iovlen: 1,
        msg_control: (&raw mut control).cast(),
        msg_controllen: cmsg_len,
        msg_flags: 0,
    };
    // SAFETY: all pointers of the structure are valid during the call.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends datagrams with forged times of each clock, and receives them. Returns their number.
fn forge(wire: &Wire) -> usize {
    let server = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    server.set_read_timeout(Some(patience(Duration::from_secs(5)))).unwrap();
    let address = server.local_addr().unwrap();
    let mut count = 0;
    for clock in CLOCKS {
        let client = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
        client.connect(address).unwrap();
        options::set(&client, libc::SOL_SOCKET, libc::SO_TXTIME, &libc::sock_txtime { clockid: clock, flags: 0 })
            .unwrap();
        let now = now(clock);
        for departure in [1, now - HOUR, now + NEAREST, now + HOUR, 1 << 62, 1 << 63, u64::MAX] {
            for _ in 0..DATAGRAMS {
                send(&client, departure).unwrap();
                server.recv(&mut [0]).unwrap();
                count += 1;
            }
        }
    }
    count
}

/// Checks that these durations of forged datagrams do not contain the forged times.
fn forged_times_change_no_duration(wire: &Wire, metrics: &[&str]) {
    let udp = [("network.transport", "udp")];
    let sidecar = Sidecar::start(often());
    let before = sidecar.snapshot();
    let sent = forge(wire) as f64;
    let after = sidecar.snapshot();
    for metric in metrics {
        let (count, sum) = between([&before, &after], metric, &udp);
        eprintln!("{metric}: {count} measurements of {sent} datagrams, {sum} s");
        assert!(count >= sent - skipped(sent as usize), "{metric}: {count} of {sent}");
        assert!(sum < NEAREST as f64 / 1e9, "{metric}: {sum} s");
    }
    sidecar.stop();
}

#[test]
fn a_sender_that_forges_departure_times_changes_no_duration() {
    let Some(_alone) = alone("forged departure times") else { return };
    // The loopback has no qdisc, and no stage is measured.
    forged_times_change_no_duration(&Wire::loopback(Version::Ipv4), &[RECEIVED]);
    let wire = Wire::veth(Version::Ipv4);
    acquaint(&wire, ["wire", "wire"]);
    wire.left.queue("wire");
    forged_times_change_no_duration(&wire, &[SENT, RECEIVED]);
}
