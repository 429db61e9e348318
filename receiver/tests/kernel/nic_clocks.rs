//! Tests of a NIC with hardware timestamps, as QEMU emulates it: the sidecar finds it and follows its clock, and
//! its timestamps agree with the kernel's.

use std::{
    ffi::c_char,
    fs::{self, File},
    io,
    mem::size_of,
    net::{Ipv4Addr, UdpSocket},
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    time::{Duration, Instant},
};

use libc::{hwtstamp_config, ifreq, sockaddr_ll};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, RecvFlags, SocketType, netdevice::name_to_index, recv},
    time::{DynamicClockId, clock_gettime_dynamic},
};

use super::{
    support::{
        line::{Line, Value},
        namespace::Namespace,
        sidecar::Sidecar,
        surroundings::{alone, often, patience, wait_for},
        truth::record,
    },
    waits::between,
};

const DURATION: &str = "undercurrent.network.receive.driver.duration";
const ERROR: &str = "undercurrent.network.receive.driver.clock.error";
/// The sender and the receiver on the virtual machine's wire. The receiver timestamps packets.
const SENDER: &str = "vnet0";
const RECEIVER: &str = "vnet1";
const OF: [(&str, &str); 1] = [("network.interface.name", RECEIVER)];
/// `HWTSTAMP_FILTER_PTP_V2_EVENT`: the packets that this NIC can timestamp.
const EVENTS: i32 = 12;
const ETH_P_1588: u16 = 0x88f7;

fn any_socket() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

/// Enables timestamps of PTP events on a NIC, as `ptp4l` does.
fn switch_on(nic: &str) {
    let mut settings = hwtstamp_config { flags: 0, tx_type: 0, rx_filter: EVENTS };
    // SAFETY: `ifreq` consists of integers and a pointer, so zeros are valid.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name.iter_mut().zip(nic.bytes()).for_each(|(to, from)| *to = from as c_char);
    request.ifr_ifru.ifru_data = (&raw mut settings).cast();
    let (socket, set) = (any_socket(), libc::SIOCSHWTSTAMP as libc::Ioctl);
    // SAFETY: the request takes an `ifreq` with a pointer to live `hwtstamp_config` settings.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), set, &raw mut request) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Opens a socket for PTP frames on a NIC.
fn frames(nic: &str) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, None).unwrap();
    // SAFETY: `sockaddr_ll` consists of integers, so zeros are valid.
    let mut address: sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ETH_P_1588.to_be();
    address.sll_ifindex = i32::try_from(name_to_index(any_socket(), nic).unwrap()).unwrap();
    let size = size_of::<sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is live and has this length.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    socket
}

/// Returns a multicast Sync message of PTP version 2, which is an event.
fn event() -> [u8; 64] {
    let mut frame = [0; 64];
    frame[..6].fill(0xff);
    frame[12..14].copy_from_slice(&ETH_P_1588.to_be_bytes());
    frame[15] = 2;
    frame
}

/// Sends an event from one NIC to the other, and returns the duration in seconds.
fn pass(from: &OwnedFd, to: &OwnedFd) -> f64 {
    let start = Instant::now();
    rustix::io::write(from, &event()).unwrap();
    let limit = Timespec::try_from(patience(Duration::from_secs(2))).unwrap();
    assert_eq!(poll(&mut [PollFd::new(to, PollFlags::IN)], Some(&limit)).unwrap(), 1, "no event came");
    recv(to, &mut [0; 64], RecvFlags::empty()).unwrap();
    start.elapsed().as_secs_f64()
}

/// Returns the largest error of a conversion in seconds. The conversion uses two readings of the NIC's clock, one
/// second apart. Each reading contributes half of its duration, and the rate between them contributes both again.
/// The test takes the slowest duration of several readings.
fn widest_error() -> f64 {
    // The first clocks may belong to other drivers.
    let clock = |n: u32| File::open(format!("/dev/ptp{n}")).ok();
    let device = fs::read_dir(format!("/sys/class/net/{RECEIVER}/device/ptp")).unwrap().flatten().next().unwrap();
    let number = device.file_name().to_string_lossy().trim_start_matches("ptp").parse().unwrap();
    let device = clock(number).expect("the NIC's clock");
    let reading = |_| {
        let start = Instant::now();
        clock_gettime_dynamic(DynamicClockId::Dynamic(device.as_fd())).unwrap();
        start.elapsed().as_secs_f64()
    };
    2.0 * (0..64).map(reading).fold(0.0, f64::max)
}

/// Returns the uncertainty of the NIC's clock in seconds, if known.
fn error(line: &Line) -> Option<f64> {
    line.find(ERROR, &OF).find_map(|point| if let Value::Number(error) = point.value { Some(error) } else { None })
}

#[test]
#[ignore = "for a virtual machine with a NIC that stamps packets; `cargo xtask test --only vm-nics` runs it"]
fn vm_nics_are_found_and_followed_and_their_timestamps_compared() {
    let Some(_alone) = alone("a NIC that stamps packets") else { return };
    for nic in [SENDER, RECEIVER] {
        Namespace::current().ip(&format!("link set dev {nic} up"));
    }
    let carrier = || fs::read_to_string(format!("/sys/class/net/{RECEIVER}/carrier")).unwrap_or_default();
    wait_for("the wire", patience(Duration::from_secs(5)), || (carrier().trim() == "1").then_some(()));
    switch_on(RECEIVER);
    let (from, to) = (frames(SENDER), frames(RECEIVER));
    let sidecar = Sidecar::start(often());
    let before = sidecar.line("the NIC's clock to be known", |line| error(line).is_some());
    // A single packet: QEMU's NIC never releases a latched timestamp, so it timestamps no later packet.
    let took = pass(&from, &to);
    let after = sidecar.line("the event to be measured", |line| between([&before, line], DURATION, &OF).0 > 0.0);
    let (count, duration) = between([&before, &after], DURATION, &OF);
    let error = error(&after).unwrap();
    eprintln!("{duration:.6} s from NIC to kernel, of {took:.6} s, where clocks are {error:.9} s off at most");
    assert_eq!(count, 1.0);
    record(DURATION, duration, 0.0..=took + error);
    record(ERROR, error, 0.0..=widest_error());
    assert_eq!(after.total("undercurrent.lost", &OF), 0.0);
}
