//! Tests that packets which a virtual device passes to a process are no reads of a socket.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    net::{IpAddr, Ipv4Addr, UdpSocket},
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
    path::Path,
    time::Duration,
};

use rustix::{
    fs::{CWD, FileType, Mode, makedev, mknodat},
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::{UnshareFlags, unshare_unsafe},
};

use super::{
    latency::{DURATION, LOST},
    support::{
        line::Line,
        namespace::Namespace,
        sidecar::Sidecar,
        surroundings::{alone, patience, skip, wait_for},
    },
};

const PACKETS: usize = 40;
/// The size of a datagram that a socket's reader copies through the tracepoint: it does not fit in one linear buffer.
const LARGE: usize = 40_000;
const OF_READS: [(&str, &str); 2] = [("undercurrent.network.layer", "socket_read"), ("network.transport", "udp")];

/// `TUNSETIFF` of `include/uapi/linux/if_tun.h`.
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
/// Packets without a header of their own (`IFF_TUN | IFF_NO_PI`).
const PLAIN: libc::c_short = 0x1001;

/// Opens a tun device in the namespace of this thread.
fn tun(name: &str) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // SAFETY: all bytes of the structure may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = PLAIN;
    // SAFETY: the kernel reads and writes the structure, which lives during the call.
    let outcome = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
    if outcome == 0 { Ok(file) } else { Err(io::Error::last_os_error()) }
}

/// Opens the character device of a macvtap interface in the namespace of this thread.
fn macvtap(name: &str) -> io::Result<File> {
    let folder = tempfile::tempdir()?;
    // SAFETY: only this thread's mounts and file system attributes change.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount("sysfs", folder.path(), "sysfs", MountFlags::empty(), None)?;
    let interface = folder.path().join("class/net").join(name);
    let index = fs::read_to_string(interface.join("ifindex"))?;
    let numbers = fs::read_to_string(interface.join(format!("tap{}/dev", index.trim())))?;
    let (major, minor) = numbers.trim().split_once(':').ok_or(io::ErrorKind::InvalidData)?;
    let number = |text: &str| text.parse::<u32>().map_err(io::Error::other);
    let device = makedev(number(major)?, number(minor)?);
    mount("tmpfs", folder.path(), "tmpfs", MountFlags::empty(), None)?;
    let path = folder.path().join("tap");
    mknodat(CWD, &path, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, device)?;
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Reads packets from a device until it has passed this many datagrams.
fn drain(mut device: File, packets: usize) {
    let mut buffer = vec![0; 1 << 16];
    let mut datagrams = 0;
    wait_for("the packets of a device", patience(Duration::from_secs(5)), || {
        while let Ok(length) = device.read(&mut buffer) {
            datagrams += usize::from(buffer[..length].windows(16).any(|bytes| bytes == [0xd9; 16]));
        }
        (datagrams >= packets).then_some(())
    });
}

fn send(from: &Namespace, to: IpAddr) {
    from.run(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        for _ in 0..PACKETS {
            socket.send_to(&[0xd9; 900], (to, 7701)).unwrap();
        }
    });
}

fn large_read() {
    let (receiver, sender) =
        (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    sender.send_to(&[1; LARGE], receiver.local_addr().unwrap()).unwrap();
    assert_eq!(receiver.recv(&mut [0; LARGE]).unwrap(), LARGE);
}

#[test]
fn packets_that_devices_pass_to_a_process_are_no_reads_of_sockets() {
    const TEST: &str = "readers of devices";
    let Some(_alone) = alone(TEST) else { return };
    let (host, machine) = (Namespace::new(), Namespace::new());
    if !Path::new("/dev/net/tun").exists() {
        return skip(&format!("{TEST}: this kernel has no tun devices"));
    }
    host.ip(&format!("link add va type veth peer name vb netns {}", machine.path()));
    host.ip("addr add 10.98.7.1/24 dev va");
    host.ip("link set va up");
    machine.ip("link set vb up");
    machine.ip("link add link vb name mt0 address 02:00:00:00:00:77 type macvtap mode bridge");
    machine.ip("link set mt0 up");
    host.ip("neigh replace 10.98.7.77 lladdr 02:00:00:00:00:77 dev va nud permanent");
    let tap = machine.run(|| macvtap("mt0")).unwrap();
    let tun = host.run(|| tun("tun7")).unwrap();
    host.ip("addr add 10.95.7.1/24 dev tun7");
    host.ip("link set tun7 up");

    let sidecar = Sidecar::configured("packets: {sampling: all}\n");
    let before = sidecar.snapshot();
    send(&host, Ipv4Addr::new(10, 98, 7, 77).into());
    drain(tap, PACKETS);
    send(&host, Ipv4Addr::new(10, 95, 7, 9).into());
    drain(tun, PACKETS);
    large_read();
    let after = sidecar.snapshot();
    let since = |metric| {
        let total = |line: &Line| line.total(metric, &OF_READS);
        total(&after) - total(&before)
    };
    // The large datagram is a read of a socket, on each kind of hook.
    assert_eq!((since(DURATION), since(LOST)), (1.0, 0.0));
}
