//! A busy CPU keeps softirqs waiting.

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
/// The most that every kernel makes of one send.
const SEGMENTS: usize = 64;
const SENDS: usize = 14;
/// How long the sender does something else. Each interrupt in it runs the softirq ten times at most, which these many
/// packets outlast.
const AFTERWARDS: Duration = Duration::from_millis(40);
/// How often others' work may keep an idle CPU from its softirqs, or the kernel a busy thread from its CPU: from 6.12 on
/// it grants tasks like `ksoftirqd` a share of every second there.
const ATTEMPTS: usize = 5;

/// Settings of the kernel's that have others for a time.
struct Settings([(PathBuf, String); 2]);

impl Settings {
    /// Each run of the receive softirq takes one packet, so that what comes at once is left to `ksoftirqd`.
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

/// Makes this thread run on one CPU, and before everything there that is not a matter of real time.
pub fn take_a_cpu() {
    on_one_cpu();
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: a live value of the type that the call reads.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Has every send leave as segments, which come to the other end one by one.
fn segment(socket: &UdpSocket) {
    options::set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, &(SEGMENT as libc::c_int)).unwrap();
}

/// Sends more than the softirq gets through at once, and does something else for a time.
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
    // What the device would cut up itself is cut up before it.
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
