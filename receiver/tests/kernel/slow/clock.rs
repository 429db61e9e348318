//! Times of spans across steps of the wall clock. Runs only in virtual machines.

use std::{cell::RefCell, thread, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use super::{
    super::{
        clock::Step,
        latency::{sees_datagrams, served_by},
        support::{
            sidecar::Sidecar,
            surroundings::{alone, patience, skip, virtual_machine, wait_for},
            wire::Version,
        },
        waits::LONG,
    },
    LATE, SMALL, Slow, late, layers, read_late, receive_late, settings, sockets, stream, traced, wire,
};

/// The steps. A packet that seems younger than the threshold after a step back has no span, so this step is shorter than the wait.
const STEPS: [i64; 2] = [3_600_000_000_000, -100_000_000];
const BACK: i64 = -3_600_000_000_000;
/// Readings of the clocks, of which the closest counts.
const READINGS: usize = 50;

fn nanoseconds(clock: ClockId) -> i128 {
    let time = clock_gettime(clock);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// Returns the nanoseconds by which the wall clock is ahead of the monotonic clock.
fn offset() -> i128 {
    let readings = (0..READINGS).map(|_| {
        let before = nanoseconds(ClockId::Monotonic);
        let wall = nanoseconds(ClockId::Realtime);
        let after = nanoseconds(ClockId::Monotonic);
        (after - before, wall - (before + after) / 2)
    });
    readings.min().unwrap().1
}

/// Returns an exchange with all times in the present wall clock. `earlier` is the offset before the step, which was during the wait.
fn in_present(slow: Slow, earlier: i128) -> Slow {
    let moved = offset() - earlier;
    let present = |time: u64| u64::try_from(i128::from(time) + moved).unwrap();
    Slow { sent: slow.sent.map(present), ..slow }
}

/// Waits until the sidecar has read the offset of the clock. The times of its lines jump, so they are counted.
fn settle(sidecar: &Sidecar) {
    let lines = sidecar.lines().len();
    let next = || (sidecar.lines().len() > lines + 1).then_some(());
    wait_for("two lines", patience(Duration::from_secs(5)), next);
}

/// Sends a packet, sets the clock while it waits, and checks the times of its span.
fn across(sidecar: &Sidecar, step: i64, layers: &[&str], exchange: impl FnOnce(&dyn Fn()) -> Slow) {
    settle(sidecar);
    let (earlier, stepped) = (offset(), RefCell::new(None));
    let wait = || {
        thread::sleep(LATE);
        *stepped.borrow_mut() = Some(Step::new(step));
        thread::sleep(LATE);
    };
    let slow = in_present(exchange(&wait), earlier);
    let (span, steps) = traced(sidecar, &slow);
    eprintln!(
        "set by {step} ns: the start is {} to {} ns after the send, the end {} to {} ns after the read",
        span.start.cast_signed() - slow.sent[1].cast_signed(),
        span.start.cast_signed() - slow.sent[0].cast_signed(),
        span.end.cast_signed() - slow.read[1].cast_signed(),
        span.end.cast_signed() - slow.read[0].cast_signed(),
    );
    slow.assert(&span, &steps, layers);
}

fn steps(version: Version) {
    let sidecar = Sidecar::configured(&settings(""));
    let line = sidecar.snapshot();
    let wire = wire(version, &line);
    if served_by(&line, "socket_read").is_none() {
        return skip("spans across steps of the clock: nothing serves socket_read");
    }
    let of_udp = layers(&sidecar);
    let of_tcp: Vec<_> = of_udp.iter().copied().filter(|layer| *layer != "ip").collect();
    let size = if sees_datagrams(&line, "socket_read") { SMALL } else { LONG };
    for step in STEPS {
        // Ports identify spans, because the times of spans jump.
        let ((client, server), (sender, receiver)) = (stream(&wire), sockets(&wire));
        across(&sidecar, step, &of_tcp, |wait| read_late(&client, &server, wait));
        across(&sidecar, step, &of_udp, |wait| receive_late(&sender, &receiver, wait, size));
    }
    let (client, server) = stream(&wire);
    settle(&sidecar);
    let _back = Step::new(BACK);
    settle(&sidecar);
    let slow = read_late(&client, &server, late);
    let (span, steps) = traced(&sidecar, &slow);
    slow.assert(&span, &steps, &of_tcp);
}

#[test]
fn vm_clock_steps_leave_the_times_of_spans_right() {
    assert!(virtual_machine().is_some(), "this sets the clock");
    let Some(_alone) = alone("spans across steps of the clock") else { return };
    Version::ALL.into_iter().for_each(steps);
}
