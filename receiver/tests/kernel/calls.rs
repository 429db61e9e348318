//! Compares the CPU time of socket calls and of io_uring's threads with the kernel's account of the threads.

use std::{
    fs::{self, DirEntry},
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use rustix::{
    io_uring::{IoringEnterFlags, IoringSetupFlags, io_uring_enter, io_uring_params, io_uring_setup},
    thread::{Pid, gettid, sched_getaffinity, sched_setaffinity},
};

use super::{
    latency::served_by,
    support::{
        line::Line,
        sidecar::Sidecar,
        surroundings::{alone, cpus, patience, pin, skip, wait_for},
        truth::record,
    },
};

const CPU_TIME: &str = "undercurrent.network.cpu.time";
const IO_URING: &str = "undercurrent.io_uring.cpu.time";
const EVENT: &str = "undercurrent.network.event";
const EXACT: &str = "signals: {network_cpu: {exact: all}}\n";
const CALLS: usize = 5000;

/// Returns the CPU time of this thread in seconds.
fn thread_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap()).as_secs_f64()
}

/// Runs `work`, and returns the CPU time that it took this thread.
fn taken(work: impl FnOnce()) -> f64 {
    let start = thread_time();
    work();
    thread_time() - start
}

/// The growth of counters between two snapshots.
struct Growth([Line; 2]);

impl Growth {
    fn during(sidecar: &Sidecar, work: impl FnOnce()) -> Self {
        let before = sidecar.snapshot();
        work();
        Self([before, sidecar.snapshot()])
    }

    fn total(&self, metric: &str, attributes: &[(&str, &str)]) -> f64 {
        self.0[1].total(metric, attributes) - self.0[0].total(metric, attributes)
    }

    fn event(&self, event: &str) -> f64 {
        self.total(CPU_TIME, &[(EVENT, event)])
    }
}

/// Starts a sidecar that measures socket calls. Reports a skip if this kernel refuses the programs.
fn measured(test: &str) -> Option<Sidecar> {
    let sidecar = Sidecar::configured(EXACT);
    if served_by(&sidecar.snapshot(), "socket_call").is_none() {
        skip(&format!("{test}: this kernel has neither fentry nor kprobes"));
        return None;
    }
    Some(sidecar)
}

/// Sends and reads datagrams over loopback, one after another.
fn datagrams() -> (impl Fn(), impl Fn()) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    let reader = socket.try_clone().unwrap();
    (
        move || assert_eq!(socket.send(&[0; 100]).unwrap(), 100),
        move || assert_eq!(reader.recv(&mut [0; 100]).unwrap(), 100),
    )
}

#[test]
fn calls_have_the_time_of_their_thread_without_softirqs() {
    let Some(_alone) = alone("socket calls") else { return };
    let Some(sidecar) = measured("socket calls") else { return };
    let (send, receive) = datagrams();
    let (mut sending, mut receiving) = (0.0, 0.0);
    let growth = Growth::during(&sidecar, || {
        for _ in 0..CALLS / 100 {
            sending += taken(|| (0..100).for_each(|_| send()));
            receiving += taken(|| (0..100).for_each(|_| receive()));
        }
    });
    let softirqs = growth.event("receive_softirq") + growth.event("transmit_softirq");
    let [sent, received] = ["socket_send", "socket_receive"].map(|event| growth.event(event));
    eprintln!(
        "send {sent:.4} s, softirqs {softirqs:.4} s of {sending:.4} s; receive {received:.4} s of {receiving:.4} s"
    );
    // A loopback softirq runs within the call that sends. The thread's time also has the entry into the kernel.
    record(CPU_TIME, sent + softirqs, 0.6 * sending..=sending);
    record(CPU_TIME, received, 0.3 * receiving..=receiving);
    let all: f64 = growth.total(CPU_TIME, &[]);
    let busy = growth.total("undercurrent.cpu.time", &[]);
    assert!(all <= busy, "{all} s of network events in {busy} s of CPU time");
}

#[test]
fn a_call_that_waits_has_only_the_time_in_which_it_runs() {
    let Some(_alone) = alone("socket calls that wait") else { return };
    let Some(sidecar) = measured("socket calls that wait") else { return };
    let (send, receive) = datagrams();
    let waits = patience(Duration::from_millis(20));
    let mut receiving = 0.0;
    let growth = Growth::during(&sidecar, || {
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..50 {
                    thread::sleep(waits);
                    send();
                }
            });
            receiving = taken(|| (0..50).for_each(|_| receive()));
        });
    });
    let received = growth.event("socket_receive");
    eprintln!("{received:.5} s of {receiving:.5} s while it waited {:?}", waits * 50);
    assert!(received > 0.0);
    record(CPU_TIME, received, 0.0..=receiving);
}

/// Moves a thread to another CPU at each step until `stop`.
fn move_about(thread: Pid, stop: &AtomicBool) {
    let allowed = sched_getaffinity(None).unwrap();
    for cpu in cpus().iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
        pin(Some(thread), *cpu);
        thread::sleep(Duration::from_millis(1));
    }
    sched_setaffinity(Some(thread), &allowed).unwrap();
}

#[test]
fn a_call_that_changes_its_cpu_keeps_its_time() {
    let Some(_alone) = alone("socket calls that change CPUs") else { return };
    let Some(sidecar) = measured("socket calls that change CPUs") else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let data = vec![0x55; 1 << 20];
    let stop = AtomicBool::new(false);
    let (mut sending, mut receiving) = (0.0, 0.0);
    let growth = Growth::during(&sidecar, || {
        thread::scope(|scope| {
            let data = &data;
            let reads = scope.spawn(move || {
                let mut buffer = vec![0; 1 << 20];
                taken(|| (0..20).for_each(|_| receiver.read_exact(&mut buffer).unwrap()))
            });
            let (this, stop) = (gettid(), &stop);
            scope.spawn(move || move_about(this, stop));
            sending = taken(|| (0..20).for_each(|_| sender.write_all(data).unwrap()));
            receiving = reads.join().unwrap();
            stop.store(true, Ordering::Relaxed);
        });
    });
    let [sent, received] = ["socket_send", "socket_receive"].map(|event| growth.event(event));
    let softirqs = growth.event("receive_softirq") + growth.event("transmit_softirq");
    eprintln!(
        "send {sent:.4} s of {sending:.4} s, receive {received:.4} s of {receiving:.4} s, softirqs {softirqs:.4} s"
    );
    record(CPU_TIME, sent + received + softirqs, 0.6 * (sending + receiving)..=1.05 * (sending + receiving));
    assert!(sent <= sending && received <= receiving);
}

/// Creates a ring whose thread polls for a second after its last submission.
fn polled_ring() -> rustix::io::Result<OwnedFd> {
    let mut parameters = io_uring_params::default();
    parameters.flags = IoringSetupFlags::SQPOLL;
    parameters.sq_thread_idle = 1000;
    // SAFETY: the ring is never mapped or submitted to, so it refers to no memory of this process.
    unsafe { io_uring_setup(4, &mut parameters) }
}

/// Returns the id of the thread that polls this process's ring.
fn polling_thread() -> Option<i32> {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let polls = |thread: &DirEntry| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.starts_with("iou-sqp-"))
    };
    threads.into_iter().find(polls).map(|thread| thread.file_name().to_str().unwrap().parse().unwrap())
}

/// Returns the CPU time of a thread of this process in seconds.
fn time_of(thread: i32) -> f64 {
    // `CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED` below the complement of the id (`include/linux/posix-timers.h`).
    let clock = !thread << 3 | 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to a live value.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[test]
fn a_polling_thread_of_io_uring_has_the_time_that_the_scheduler_gave_it() {
    let Some(_alone) = alone("threads of io_uring") else { return };
    let Some(sidecar) = measured("threads of io_uring") else { return };
    let before = sidecar.snapshot();
    let ring = match polled_ring() {
        Ok(ring) => ring,
        Err(error) => return skip(&format!("threads of io_uring: {error}")),
    };
    let Some(thread) = polling_thread() else { return skip("threads of io_uring: before 5.12 they have other names") };
    // The thread sleeps after a second, so that its time is final.
    let asleep = || {
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        stat.contains(") S ").then_some(())
    };
    wait_for("the thread to run", patience(Duration::from_secs(5)), || {
        // SAFETY: the call only wakes the thread.
        unsafe { io_uring_enter(&ring, 0, 0, IoringEnterFlags::SQ_WAKEUP) }.unwrap();
        (time_of(thread) > 0.2).then_some(())
    });
    wait_for("the thread to sleep", patience(Duration::from_secs(5)), asleep);
    let (used, after) = (time_of(thread), sidecar.snapshot());
    drop(ring);
    let thread = [("undercurrent.io_uring.thread", "sqpoll")];
    record(IO_URING, after.total(IO_URING, &thread) - before.total(IO_URING, &thread), used..=used);
}
