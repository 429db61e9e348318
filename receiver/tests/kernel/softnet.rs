//! The receive softirq's counters, against a device's counters and a second reading.

use std::{fs, net::UdpSocket, thread, time::Duration};

use super::support::{
    options,
    sidecar::Sidecar,
    surroundings::{alone, often, on_one_cpu, patience, wait_for},
    sysctl::Sysctl,
    truth::record,
    wire::{Version, Wire},
};

const METRICS: [&str; 3] =
    ["undercurrent.softnet.processed", "undercurrent.softnet.dropped", "undercurrent.softnet.squeezed"];
/// Segments of one send, which a virtual device queues one by one.
const SEGMENTS: usize = 64;
const SEGMENT: usize = 100;
/// Settings that limit each run of the softirq to one packet.
const ONE_PACKET: [&str; 2] = ["net/core/dev_weight", "net/core/netdev_budget"];
/// Together more than a CPU's backlog queue takes (`net.core.netdev_max_backlog`, 1000 by default).
const SENDS: usize = 64;

/// Returns the first three columns, summed over all CPUs. The file contains hexadecimal numbers of 32 bits.
fn file() -> [f64; 3] {
    let text = fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let column = |n: usize| {
        let numbers =
            text.lines().map(|line| u32::from_str_radix(line.split_whitespace().nth(n).unwrap(), 16).unwrap());
        numbers.map(f64::from).sum()
    };
    [column(0), column(1), column(2)]
}

/// Returns the packets that the left device dropped because the receiver's backlog queue was full.
fn refused(wire: &Wire) -> f64 {
    let devices = wire.left.run(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let device = devices.lines().find_map(|line| line.trim().strip_prefix("wire:")).unwrap();
    // Eight fields of received packets, then bytes, packets, errors and drops of sent ones.
    device.split_whitespace().nth(11).unwrap().parse().unwrap()
}

/// Sends more packets than the backlog queue of a CPU takes, while `ksoftirqd` cannot run there.
fn overflow(socket: &UdpSocket) {
    let flood = || {
        on_one_cpu();
        let priority = libc::sched_param { sched_priority: 1 };
        // SAFETY: `priority` is a live `sched_param`.
        let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        for _ in 0..SENDS {
            socket.send(&[0x55; SEGMENT * SEGMENTS]).unwrap();
        }
    };
    thread::scope(|scope| scope.spawn(flood).join().unwrap());
}

#[test]
fn softirq_counters_are_the_devices_and_the_kernels() {
    let Some(_alone) = alone("counters of the receive softirq") else { return };
    let wire = Wire::veth(Version::Ipv4);
    wire.left.ip("link set dev wire gso_max_segs 1");
    let sink = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let socket = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    socket.connect(sink.local_addr().unwrap()).unwrap();
    socket.send(b"who has this address").unwrap();
    sink.recv(&mut [0; SEGMENT]).unwrap();
    // With the default buffer the socket would block after a few hundred queued segments.
    options::set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(1_i32 << 24)).unwrap();
    options::set(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, &(SEGMENT as libc::c_int)).unwrap();

    let sidecar = Sidecar::start(often());
    let (outer, refused_before) = (file(), refused(&wire));
    let before = sidecar.snapshot();
    let inner = file();
    wait_for("a backlog queue to overflow", patience(Duration::from_secs(20)), || {
        let settings = ONE_PACKET.map(|name| Sysctl::set(name, "1"));
        overflow(&socket);
        drop(settings);
        (refused(&wire) > refused_before).then_some(())
    });
    // The queue is empty before the last snapshot.
    wire.settled();
    let inner_end = file();
    let after = sidecar.snapshot();
    let (outer_end, refused) = (file(), refused(&wire) - refused_before);
    for (n, metric) in METRICS.into_iter().enumerate() {
        let grown = after.total(metric, &[]) - before.total(metric, &[]);
        assert!(grown > 0.0, "{metric}");
        let most = outer_end[n] - outer[n];
        // Usually only the test's device sends to a full queue; other devices may add drops.
        let least = if metric.ends_with("dropped") { refused } else { inner_end[n] - inner[n] };
        record(metric, grown, least..=most);
    }
}

/// Returns the waits of all threads for softirqs in seconds.
fn thread_waits() -> f64 {
    let waits = procfs::process::all_processes().unwrap().filter_map(|process| {
        let process = process.ok()?;
        process.stat().ok()?.comm.starts_with("ksoftirqd/").then_some(())?;
        process.schedstat().ok()
    });
    waits.map(|stat| stat.run_delay as f64 / 1e9).sum()
}

#[test]
fn waits_of_threads_are_the_kernels() {
    let Some(_alone) = alone("waits of ksoftirqd") else { return };
    const WAIT: &str = "undercurrent.softnet.thread.wait.time";
    let wire = Wire::veth(Version::Ipv4);
    let socket = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    socket.connect((wire.server(), 9)).unwrap();
    let outer = thread_waits();
    let sidecar = Sidecar::start(often());
    let (before, inner) = (sidecar.snapshot(), thread_waits());
    // With a budget of one packet, the softirq is left to its thread, which competes with this one.
    let is_left_to_a_thread = || {
        let settings = ONE_PACKET.map(|name| Sysctl::set(name, "1"));
        for _ in 0..2000 {
            // The peer refuses datagrams.
            let _ = socket.send(&[0x55; SEGMENT]);
        }
        drop(settings);
        (thread_waits() > inner).then_some(())
    };
    wait_for("a thread to wait", patience(Duration::from_secs(20)), is_left_to_a_thread);
    let inner_end = thread_waits();
    let after = sidecar.snapshot();
    let outer_end = thread_waits();
    let grown = after.total(WAIT, &[]) - before.total(WAIT, &[]);
    record(WAIT, grown, 0.0_f64.max(inner_end - inner) - 1e-9..=outer_end - outer + 1e-9);
}
