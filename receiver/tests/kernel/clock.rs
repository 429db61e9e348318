//! Sets the wall clock while packets are in flight. Runs only in virtual machines.

use std::{net::UdpSocket, thread, time::Duration};

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use super::{
    latency::{DURATION, LOST},
    support::{
        line::{Line, Value},
        load::Load,
        sidecar::{BINARY, Sidecar, command},
        surroundings::{alone, often, virtual_machine, wait_for},
        wire::{Version, Wire},
    },
};

pub const HOUR: i64 = 3600;
/// Datagrams of a test that does not measure time.
const MESSAGES: usize = 100;
const NANOSECONDS: i64 = 1_000_000_000;
/// The share of packets that may be wrong: those in flight, and those before the kernel notified the sidecar. The
/// notification takes some milliseconds on an emulated machine, and longer on shared processors. Without the
/// notification, the share until the next snapshot would be a sixth.
const UNTOLD: f64 = 0.1;
/// No packet takes this long on one machine, not even on an emulated one.
const IMPLAUSIBLE: Duration = Duration::from_secs(8);

/// A step of the clock forward or back, in nanoseconds. Dropping the value reverts it.
pub struct Step(i64);

impl Step {
    pub fn by(seconds: i64) -> Self {
        Self::new(seconds * NANOSECONDS)
    }

    pub fn new(nanoseconds: i64) -> Self {
        step(nanoseconds);
        Self(nanoseconds)
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        step(-self.0);
    }
}

fn step(nanoseconds: i64) {
    let now = clock_gettime(ClockId::Realtime);
    let time = now.tv_sec * NANOSECONDS + now.tv_nsec + nanoseconds;
    let set = Timespec { tv_sec: time.div_euclid(NANOSECONDS), tv_nsec: time.rem_euclid(NANOSECONDS) };
    clock_settime(ClockId::Realtime, set).unwrap();
}

/// Returns the number of impossible durations.
fn implausible(line: &Line) -> u64 {
    let of = |value: &Value| {
        let Value::Histogram(histogram) = value else { return 0 };
        let bound = |index: i32| (f64::from(index) * (f64::from(-histogram.scale)).exp2()).exp2();
        let Some(buckets) = &histogram.positive else { return 0 };
        let long = (buckets.offset..)
            .zip(&buckets.bucket_counts)
            .filter(|(index, _)| bound(*index) >= IMPLAUSIBLE.as_secs_f64());
        long.map(|(_, count)| *count).sum::<u64>()
    };
    line.find(DURATION, &[]).map(|point| of(&point.value)).sum()
}

fn recorded(line: &Line) -> f64 {
    line.total(DURATION, &[])
}

/// The results of packets around a step of the clock.
struct Around {
    recorded: f64,
    implausible: f64,
    negative: f64,
}

/// Steps the clock while packets are in flight. Dropping the result of `change` reverts the step.
fn around<T>(sidecar: &Sidecar, change: impl FnOnce() -> T) -> Around {
    let before = sidecar.snapshot();
    let changed = change();
    thread::sleep(Duration::from_secs(2));
    // The test identifies lines by their number, because their times jump.
    let lines = sidecar.lines().len();
    let after = wait_for("a snapshot", Duration::from_secs(20), || sidecar.lines().get(lines + 1).cloned());
    drop(changed);
    let of = [("undercurrent.signal", "latency"), ("undercurrent.reason", "negative")];
    Around {
        recorded: recorded(&after) - recorded(&before),
        implausible: (implausible(&after) - implausible(&before)) as f64,
        negative: after.total(LOST, &of) - before.total(LOST, &of),
    }
}

/// A time namespace shifts the monotonic clock that the sidecar reads, and not the one that programs read.
#[test]
fn a_time_namespace_shifts_no_latency() {
    let Some(_alone) = alone("a time namespace") else { return };
    let mut start = command("unshare");
    start.args(["--time", "--monotonic", "100000", "--boottime", "100000", "--fork", "--kill-child"]).arg(BINARY);
    let (sidecar, wire) = (Sidecar::start_by(start, often(), &[]), Wire::best(Version::Ipv4));
    let before = sidecar.snapshot();
    exchange(&wire);
    let after = sidecar.snapshot();
    let grown = recorded(&after) - recorded(&before);
    assert!(grown >= MESSAGES as f64, "{grown} of {MESSAGES} datagrams were recorded");
    let negative = [("undercurrent.signal", "latency"), ("undercurrent.reason", "negative")];
    assert_eq!(after.total(LOST, &negative), 0.0);
    assert_eq!(implausible(&after), 0);
}

fn exchange(wire: &Wire) {
    let receiver = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let sender = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    for _ in 0..MESSAGES {
        sender.send_to(&[0; 100], receiver.local_addr().unwrap()).unwrap();
        receiver.recv(&mut [0; 100]).unwrap();
    }
}

#[test]
fn vm_clock_set_by_an_hour_makes_no_wrong_latencies() {
    assert!(virtual_machine().is_some(), "this sets the clock");
    let Some(_alone) = alone("the clock set") else { return };
    let (sidecar, wire) = (Sidecar::start(often()), Wire::best(Version::Ipv4));
    let load = Load::start(&wire, Duration::from_secs(60));
    for seconds in [HOUR, -HOUR] {
        let Around { recorded, implausible, negative } = around(&sidecar, || Step::by(seconds));
        eprintln!("set by {seconds} s: {recorded} recorded, {implausible} of them wrong, {negative} negative");
        assert!(recorded > 2000.0, "hardly any packet was recorded: {recorded}");
        assert!(implausible <= recorded * UNTOLD, "{implausible} implausible durations");
        assert!(negative <= recorded * UNTOLD, "{negative} negative durations");
    }
    load.stop();
}

/// An offset of atomic time (TAI) from the wall clock.
struct Atomic {
    before: i32,
}

impl Atomic {
    fn ahead(seconds: i32) -> Self {
        Self { before: adjust(libc::ADJ_TAI, seconds) }
    }
}

impl Drop for Atomic {
    fn drop(&mut self) {
        adjust(libc::ADJ_TAI, self.before);
    }
}

/// Calls `adjtimex`, and returns the earlier offset of atomic time.
fn adjust(modes: libc::c_uint, constant: i32) -> i32 {
    // SAFETY: `timex` consists of integers, so zeros are valid.
    let asked = || libc::timex { constant: constant.into(), ..unsafe { std::mem::zeroed() } };
    let (mut before, mut change) = (asked(), libc::timex { modes, ..asked() });
    // SAFETY: each call gets a live `timex`.
    let results = [&mut before, &mut change].map(|asked| unsafe { libc::adjtimex(asked) });
    assert!(!results.contains(&-1), "{}", std::io::Error::last_os_error());
    before.tai
}

#[test]
fn vm_clock_of_atomic_time_changes_nothing() {
    assert!(virtual_machine().is_some(), "this sets the clock");
    let Some(_alone) = alone("atomic time") else { return };
    let (sidecar, wire) = (Sidecar::start(often()), Wire::best(Version::Ipv4));
    let load = Load::start(&wire, Duration::from_secs(60));
    // An NTP daemon sets this offset, which the kernel does not know at its start.
    let Around { recorded, implausible, negative } = around(&sidecar, || Atomic::ahead(37));
    eprintln!("atomic time ahead by 37 s: {recorded} recorded, {implausible} of them wrong, {negative} negative");
    assert!(recorded > 2000.0, "hardly any packet was recorded: {recorded}");
    assert_eq!([implausible, negative], [0.0, 0.0]);
    load.stop();
}
