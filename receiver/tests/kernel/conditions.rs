//! Tests conditions under which values must stay correct: counters never decrease and never jump, and they agree
//! with the kernel's counters.

use std::{
    fs,
    net::UdpSocket,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use undercurrent::workloads::Mounts;

use super::{
    clock::{HOUR, Step},
    latency::{Agreement, LOST, assert_agrees, seen},
    support::{
        cgroups::{Burner, Group},
        counters::Received,
        growth::{Clock, assert_sound},
        line::{Line, Point},
        load::Load,
        sidecar::Sidecar,
        surroundings::{alone, often, patience, skip, virtual_machine, wait_for},
        wire::{Version, Wire},
    },
};

const DATAGRAMS: usize = 500;

/// A wire of this test with datagram sockets at its ends.
struct Traffic {
    wire: Wire,
    from: UdpSocket,
    to: UdpSocket,
}

impl Traffic {
    fn open() -> Self {
        let wire = Wire::veth(Version::Ipv4);
        let to = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
        let from = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        to.set_read_timeout(Some(patience(Duration::from_secs(2)))).unwrap();
        Self { wire, from, to }
    }

    /// Sends datagrams, and reads each.
    fn exchange(&self) {
        for _ in 0..DATAGRAMS {
            self.from.send(&[0x55; 100]).unwrap();
            self.to.recv(&mut [0; 100]).unwrap();
        }
    }
}

/// The kernel's counts since a snapshot.
struct Check<'a> {
    traffic: &'a Traffic,
    before: Line,
    counted: Received,
    others: Received,
}

impl<'a> Check<'a> {
    fn begin(sidecar: &Sidecar, traffic: &'a Traffic) -> Self {
        let others = Received::by_others(&traffic.wire);
        Self { traffic, before: sidecar.snapshot(), counted: traffic.wire.received(), others }
    }

    /// Asserts that the sidecar counted as many datagrams as the kernel.
    fn end(self, after: &Line) {
        let counted = self.traffic.wire.received() - self.counted;
        let others = Received::by_others(&self.traffic.wire) - self.others;
        let of = |line: &Line| seen(line, "transport", Some("udp"), Version::Ipv4);
        let (udp, others) = (counted.udp_of(Version::Ipv4), others.udp_of(Version::Ipv4));
        assert!(udp >= DATAGRAMS as u64);
        assert_agrees("transport udp", of(after) - of(&self.before), udp, others, Agreement::Percent);
    }
}

/// Waits for `count` more lines of a sidecar.
fn some_lines(sidecar: &Sidecar, count: usize) {
    let from = sidecar.lines().len();
    wait_for("some lines", patience(Duration::from_secs(10)), || (sidecar.lines().len() >= from + count).then_some(()));
}

#[test]
fn an_idle_host() {
    let Some(_alone) = alone("an idle host") else { return };
    let (sidecar, traffic) = (Sidecar::start(often()), Traffic::open());
    some_lines(&sidecar, 5);
    let check = Check::begin(&sidecar, &traffic);
    traffic.exchange();
    check.end(&sidecar.snapshot());
    assert_sound(&sidecar.stop(), Clock::Steady);
}

/// Returns a cgroup with a busy process for each CPU.
fn busy() -> (Group, Vec<Burner>) {
    let mounts = Mounts::read().unwrap();
    let mount = mounts.cpu.or(mounts.v2).expect("cgroups are mounted");
    let group = Group::create(vec![mount.point], "").unwrap();
    let cpus = thread::available_parallelism().unwrap().get();
    let burners = (0..cpus).map(|_| group.burn(&group.path).unwrap()).collect();
    (group, burners)
}

#[test]
fn a_fully_loaded_host() {
    let Some(_alone) = alone("a loaded host") else { return };
    let (sidecar, traffic) = (Sidecar::start(often()), Traffic::open());
    let (_group, _burners) = busy();
    let load = Load::start(&traffic.wire, patience(Duration::from_secs(10)));
    some_lines(&sidecar, 3);
    load.stop();
    let check = Check::begin(&sidecar, &traffic);
    traffic.exchange();
    check.end(&sidecar.snapshot());
    assert_sound(&sidecar.stop(), Clock::Steady);
}

/// A CPU that is offline until the value is dropped.
struct Offline(PathBuf);

impl Offline {
    fn take(number: usize) -> std::io::Result<Self> {
        let path = Path::new("/sys/devices/system/cpu").join(format!("cpu{number}/online"));
        fs::write(&path, "0")?;
        Ok(Self(path))
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.0, "1") {
            eprintln!("{} stays offline: {error}", self.0.display());
        }
    }
}

#[test]
fn a_cpu_that_goes_offline_and_returns() {
    let Some(_alone) = alone("a CPU that goes offline") else { return };
    let (sidecar, traffic) = (Sidecar::start(often()), Traffic::open());
    let check = Check::begin(&sidecar, &traffic);
    for _ in 0..2 {
        traffic.exchange();
        let offline = match Offline::take(1) {
            Ok(offline) => offline,
            Err(error) => return skip(&format!("a CPU that goes offline: the second CPU stays: {error}")),
        };
        traffic.exchange();
        some_lines(&sidecar, 2);
        drop(offline);
        some_lines(&sidecar, 2);
    }
    traffic.exchange();
    check.end(&sidecar.snapshot());
    assert_sound(&sidecar.stop(), Clock::Steady);
}

/// Returns the late ticks that a line reports.
fn late(line: &Line) -> f64 {
    line.find(LOST, &[("undercurrent.reason", "late_tick")]).map(Point::amount).sum()
}

/// Stops the sidecar's worker for a time while traffic continues.
fn stopped(test: &str, duration: Duration) {
    let Some(_alone) = alone(test) else { return };
    let (sidecar, traffic) = (Sidecar::start(often()), Traffic::open());
    let check = Check::begin(&sidecar, &traffic);
    let worker = Pid::from_raw(sidecar.pid().cast_signed()).unwrap();
    kill_process(worker, Signal::STOP).unwrap();
    let start = Instant::now();
    while start.elapsed() < duration {
        traffic.exchange();
        thread::sleep(duration / 10);
    }
    kill_process(worker, Signal::CONT).unwrap();
    let before = late(&check.before);
    let after = sidecar.snapshot();
    check.end(&after);
    // A late tick is counted after its snapshot.
    let counted = sidecar.line("the late tick", |line| late(line) > before);
    assert_eq!(late(&counted) - before, 1.0, "the intervals that were missed are one late tick");
    assert_sound(&sidecar.stop(), Clock::Steady);
}

#[test]
fn a_stopped_sidecar_that_goes_on_after_missed_intervals() {
    stopped("a stopped sidecar", patience(Duration::from_secs(2)));
}

#[test]
fn a_sidecar_that_is_stopped_for_half_a_minute() {
    stopped("a sidecar stopped for long", Duration::from_secs(30));
}

#[test]
fn vm_clock_set_by_an_hour_leaves_counters_growing() {
    assert!(virtual_machine().is_some(), "this sets the clock");
    let Some(_alone) = alone("counters while the clock is set") else { return };
    let start = Instant::now();
    let (sidecar, traffic) = (Sidecar::start(often()), Traffic::open());
    let check = Check::begin(&sidecar, &traffic);
    for seconds in [HOUR, -HOUR] {
        let step = Step::by(seconds);
        traffic.exchange();
        some_lines(&sidecar, 2);
        drop(step);
        some_lines(&sidecar, 2);
    }
    let after = sidecar.lines().last().unwrap().clone();
    check.end(&after);
    assert_sound(&sidecar.stop(), Clock::Set(start.elapsed()));
}

#[test]
fn a_sidecar_that_is_restarted_in_the_middle_of_traffic() {
    let Some(_alone) = alone("a restarted sidecar") else { return };
    let traffic = Traffic::open();
    let load = Load::start(&traffic.wire, patience(Duration::from_secs(60)));
    let mut lines = Vec::new();
    for _ in 0..2 {
        let sidecar = Sidecar::start(often());
        some_lines(&sidecar, 3);
        lines.extend(sidecar.stop());
    }
    load.stop();
    assert_sound(&lines, Clock::Steady);
    let starts = |line: &Line| line.find("process.cpu.time", &[]).map(|point| point.start).next().unwrap();
    assert!(starts(&lines[0]) < starts(lines.last().unwrap()), "the second sidecar counts since its own start");
    let sidecar = Sidecar::start(often());
    let check = Check::begin(&sidecar, &traffic);
    traffic.exchange();
    check.end(&sidecar.snapshot());
}
