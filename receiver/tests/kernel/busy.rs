//! Tests of softirqs that wait on a busy CPU.

use std::{
    fs,
    net::UdpSocket,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use super::{
    support::{
        options,
        sidecar::Sidecar,
        surroundings::{alone, often, on_one_cpu},
        wire::{Version, Wire},
    },
    waits::between,
};

const WAIT: &str = "undercurrent.softirq.wait.duration";
const SEGMENT: usize = 100;
/// The largest number of segments in one send that every kernel supports.
const SEGMENTS: usize = 64;
const SENDS: usize = 14;
/// How long the sender occupies the CPU. Each interrupt in this time runs the softirq at most ten times, which is
/// not enough for these packets.
const AFTERWARDS: Duration = Duration::from_millis(40);
/// The number of attempts. Other tasks may keep an idle CPU from its softirqs, and from Linux 6.12 on the kernel
/// grants tasks like `ksoftirqd` a share of each second on a busy CPU.
const ATTEMPTS: usize = 5;

/// Changed kernel settings with their earlier values, which return when this value is dropped.
struct Settings([(PathBuf, String); 2]);

impl Settings {
    /// Limits each run of the receive softirq to one packet, so that packets of a burst are left to `ksoftirqd`.
    fn one_packet_a_run() -> Self {
        Self(["dev_weight", "netdev_budget"].map(|name| {
            let path = PathBuf::from("/proc/sys/net/core").join(name);
            let before = fs::read_to_string(&path).unwrap();
            fs::write(&path, "1").unwrap();
            (path, before)
        }))
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for (path, before) in &self.0 {
            let _ = fs::write(path, before);
        }
    }
}

/// Pins this thread to one CPU with a real-time priority, so that it preempts all other tasks there.
pub fn take_a_cpu() {
    on_one_cpu();
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: `priority` is a live `sched_param`.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Segments every send (`UDP_SEGMENT`); the receiver gets the segments one by one.
fn segment(socket: &UdpSocket) {
    options::set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, &(SEGMENT as libc::c_int)).unwrap();
}

/// Sends more than the softirq processes at once, and then occupies the CPU.
fn flood(socket: &UdpSocket, afterwards: impl FnOnce() + Send) {
    let flood = || {
        take_a_cpu();
        for _ in 0..SENDS {
            socket.send(&[0x55; SEGMENT * SEGMENTS]).unwrap();
        }
        afterwards();
    };
    thread::scope(|scope| scope.spawn(flood).join().unwrap());
}

#[test]
fn a_busy_cpu_raises_the_softirq_wait() {
    let Some(_alone) = alone("softirq waits") else { return };
    let wire = Wire::veth(Version::Ipv4);
    // The kernel segments in software packets that the device would segment.
    wire.left.ip("link set dev wire gso_max_segs 1");
    let sink = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let socket = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    socket.connect(sink.local_addr().unwrap()).unwrap();
    socket.send(b"who has this address").unwrap();
    sink.recv(&mut [0; SEGMENT]).unwrap();
    segment(&socket);

    let spin = || {
        let start = Instant::now();
        while start.elapsed() < AFTERWARDS {
            std::hint::spin_loop();
        }
    };
    let sidecar = Sidecar::start(often());
    let waited = |afterwards: &(dyn Fn() + Sync)| {
        let before = sidecar.snapshot();
        let settings = Settings::one_packet_a_run();
        flood(&socket, afterwards);
        drop(settings);
        between([&before, &sidecar.snapshot()], WAIT, &[("undercurrent.softirq", "net_rx")]).1
    };
    let shown = (0..ATTEMPTS).any(|_| {
        let (busy, idle) = (waited(&spin), waited(&|| thread::sleep(AFTERWARDS)));
        eprintln!("softirqs waited {busy:.6} s while a CPU was busy for {AFTERWARDS:?}, else {idle:.6} s");
        busy >= AFTERWARDS.as_secs_f64() / 2.0 && idle < busy / 2.0
    });
    assert!(shown, "a busy CPU does not show in how long softirqs wait");
}
