//! The wall clock is set while packets are under way. Never on a real machine.

use std::{thread, time::Duration};

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use super::{
    latency::{DURATION, LOST},
    support::{
        line::{Line, Value},
        load::Load,
        sidecar::Sidecar,
        surroundings::{alone, often, virtual_machine, wait_for},
        wire::{Version, Wire},
    },
};

const HOUR: i64 = 3600;
/// The share of seconds' packets that may be off: those in flight, and those until the sidecar was told, which takes an
/// emulated machine some milliseconds. A sidecar that waits for its next snapshot has a share of a sixth.
const UNTOLD: f64 = 0.02;
/// No packet takes this long on one machine, an emulated one included.
const IMPLAUSIBLE: Duration = Duration::from_secs(8);

/// Sets the clock on or back; what is left of the change is undone when the value goes.
struct Step(i64);

impl Step {
    fn by(seconds: i64) -> Self {
        step(seconds);
        Self(seconds)
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        step(-self.0);
    }
}

fn step(seconds: i64) {
    let now = clock_gettime(ClockId::Realtime);
    clock_settime(ClockId::Realtime, Timespec { tv_sec: now.tv_sec + seconds, tv_nsec: now.tv_nsec }).unwrap();
}

/// Durations recorded that no packet can have taken.
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

#[test]
fn vm_clock_set_by_an_hour_makes_no_wrong_latencies() {
    assert!(virtual_machine().is_some(), "this sets the clock");
    let Some(_alone) = alone("the clock set") else { return };
    let sidecar = Sidecar::start(often());
    let wire = Wire::best(Version::Ipv4);
    let load = Load::start(&wire, Duration::from_secs(60));
    for seconds in [HOUR, -HOUR] {
        let before = sidecar.snapshot();
        let stepped = Step::by(seconds);
        thread::sleep(Duration::from_secs(2));
        // Lines are found by their number here, since their times jump.
        let lines = sidecar.lines().len();
        let after = wait_for("a snapshot", Duration::from_secs(20), || sidecar.lines().get(lines + 1).cloned());
        let lost = |reason: &str| {
            let of = [("undercurrent.signal", "latency"), ("undercurrent.reason", reason)];
            after.total(LOST, &of) - before.total(LOST, &of)
        };
        let wrong = (implausible(&after) - implausible(&before)) as f64;
        let more = recorded(&after) - recorded(&before);
        eprintln!("set by {seconds} s: {more} recorded, {wrong} of them wrong, {} negative", lost("negative"));
        assert!(more > 2000.0, "hardly any packet was recorded: {more}");
        assert!(wrong <= more * UNTOLD, "{wrong} implausible durations");
        assert!(lost("negative") <= more * UNTOLD, "{} negative durations", lost("negative"));
        drop(stepped);
    }
    load.stop();
    drop(sidecar);
}
