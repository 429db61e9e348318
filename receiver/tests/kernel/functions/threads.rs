//! Packets that a thread of the kernel receives in the place of the softirq.

use std::{
    collections::BTreeSet, fs, io, net::UdpSocket, os::fd::AsRawFd as _, process::Command, thread, time::Duration,
};

use super::{
    super::support::{
        surroundings::{alone, on_first_cpu, patience, skip, virtual_machine, wait_for},
        truth::record,
        wire::{Version, Wire},
    },
    ESTIMATED, RECEIVE, SAMPLES, flood, growth, start,
};

const KERNEL_THREAD: (&str, &str) = ("undercurrent.network.event", "kernel_thread");

/// Commands of `include/uapi/linux/ethtool.h`.
const SET_TSO: u32 = 0x1f;
const SET_GRO: u32 = 0x2c;

/// Sets a feature of the interface `wire` of the calling thread's namespace.
fn set(feature: u32, value: u32) {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
    let mut value = [feature, value];
    // SAFETY: all members are integers or null pointers, for which zero bytes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..4].copy_from_slice(&b"wire".map(u8::cast_signed));
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the kernel reads the request and its value, which outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Makes the interface `wire` of the calling thread's namespace poll in threads. Returns false if the kernel has no such threads.
fn poll_in_threads() -> bool {
    const SET: &str = "mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/wire/threaded";
    Command::new("unshare").args(["--mount", "sh", "-c", SET]).status().unwrap().success()
}

/// Returns the threads of NAPI.
fn threads() -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_poller =
        |id: &u32| fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.starts_with("napi/"));
    processes.filter(is_poller).collect()
}

/// Returns the seconds for which a thread ran.
fn ran(thread: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() * 1e-9
}

#[test]
fn the_time_of_threads_that_receive_is_network_work() {
    let Some(_alone) = alone("threads that receive") else { return };
    if virtual_machine().is_some() {
        return skip("threads that receive: timers of an emulated CPU are late");
    }
    let wire = Wire::veth(Version::Ipv4);
    // veth polls by NAPI if the receiver combines segments that the sender divides (`veth_skb_is_eligible_for_gro`, Linux 6.18).
    wire.left.run(|| set(SET_TSO, 0));
    wire.right.run(|| set(SET_GRO, 1));
    let earlier = threads();
    if !wire.right.run(poll_in_threads) {
        return skip("threads that receive: this kernel has no threaded NAPI");
    }
    let thread = wait_for("a thread of NAPI", patience(Duration::from_secs(5)), || {
        threads().difference(&earlier).next().copied()
    });
    let sidecar = start();
    let (before, earlier) = (sidecar.snapshot(), ran(thread));
    flood(&wire, Duration::from_secs(5));
    let (exact, after) = (ran(thread) - earlier, sidecar.snapshot());
    let [estimated, samples] = [ESTIMATED, SAMPLES].map(|metric| growth(&before, &after, metric, &[KERNEL_THREAD]));
    assert!(samples > 100.0, "too few samples: {samples}");
    let deviation = (exact * estimated / samples).sqrt();
    eprintln!(
        "{estimated:.3} s by {samples} samples, {exact:.3} s by the scheduler, {:.2} deviations",
        (estimated - exact) / deviation
    );
    // The thread also sleeps and wakes between its polls.
    record(ESTIMATED, estimated, 0.8 * exact - 4.0 * deviation..=exact + 4.0 * deviation);
}

#[test]
#[ignore = "for a virtual machine with backlog threads; `cargo xtask test --only vm-backlog` runs it"]
fn vm_backlog_threads_receive_in_functions() {
    let Some(_alone) = alone("backlog threads") else { return };
    let parameters = fs::read_to_string("/proc/cmdline").unwrap();
    assert!(parameters.contains("thread_backlog_napi"), "this kernel has no backlog threads: {parameters}");
    for version in Version::ALL {
        let (sidecar, wire) = (start(), Wire::veth(version));
        // The kernel wakes the thread of another CPU only.
        assert!(wire.steer(), "this kernel steers no packets");
        let before = sidecar.snapshot();
        let (threads, softirqs) = wait_for("samples of backlog threads", patience(Duration::from_secs(10)), || {
            thread::scope(|scope| {
                scope.spawn(|| {
                    on_first_cpu();
                    flood(&wire, Duration::from_millis(300));
                });
            });
            let after = sidecar.snapshot();
            let of = |attributes: &[(&str, &str)]| growth(&before, &after, SAMPLES, attributes);
            let threads = of(&[KERNEL_THREAD, ("undercurrent.network.function", "udp_receive")]);
            let softirqs = of(&[RECEIVE, ("undercurrent.network.function", "udp_receive")]);
            eprintln!("{version:?}: {threads} samples of threads, {softirqs} of softirqs");
            (threads + softirqs > 20.0).then_some((threads, softirqs))
        });
        assert!(softirqs < 0.1 * threads, "{softirqs} of {threads}");
    }
}
