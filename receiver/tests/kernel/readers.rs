//! Tests of the states of a reader while a packet waits for it.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use super::{
    latency::served_by,
    slow::{Slow, settings, stream, traced},
    support::{
        sidecar::Sidecar,
        span::Span,
        surroundings::{alone, on_one_cpu, patience, skip, wait_for},
        wire::{Version, Wire},
    },
};

/// Bytes of a packet.
const LENGTH: usize = 32;
/// The time for which a packet waits.
const LATE: Duration = Duration::from_millis(150);
const ASLEEP: &str = "reader: asleep";
const RUNNABLE: &str = "reader: waiting for a CPU";
const RUNNING: &str = "reader: running";

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn read(mut server: &TcpStream) -> usize {
    server.read(&mut [0; 64]).unwrap()
}

/// Sends a packet, delays, and reads it. Returns the states of the reader, and the span's step at the read.
fn states(sidecar: &Sidecar, client: &TcpStream, server: &TcpStream, delay: impl FnOnce()) -> (Vec<Span>, Span) {
    let ends = [server.local_addr().unwrap(), server.peer_addr().unwrap()];
    let send = || {
        // A wakeup of this thread.
        thread::sleep(Duration::from_millis(1));
        (&*client).write(&[0x55; LENGTH]).unwrap()
    };
    let slow = Slow::exchange(ends, send, delay, || read(server));
    states_of(sidecar, &slow)
}

fn states_of(sidecar: &Sidecar, slow: &Slow) -> (Vec<Span>, Span) {
    let (span, steps) = traced(sidecar, slow);
    let step = steps.iter().find(|step| step.name.ends_with("socket_read"));
    let step = step.unwrap_or_else(|| panic!("no step at the read: {span:?}, {steps:?}")).clone();
    let of_step = || {
        let states: Vec<_> = sidecar.spans().iter().filter(|state| state.parent == step.id).cloned().collect();
        (!states.is_empty()).then_some(states)
    };
    let states = wait_for("the states of a reader", patience(Duration::from_secs(5)), of_step);
    assert_adjacent(&states, &step);
    assert_eq!(step.trace, span.trace);
    (states, step)
}

/// Asserts that the states follow one another from the start to the end of a step.
fn assert_adjacent(states: &[Span], step: &Span) {
    let mut before = step.start;
    for state in states {
        assert_eq!((state.start, &state.trace), (before, &step.trace), "{states:?}");
        before = state.end;
    }
    assert_eq!(before, step.end, "{states:?}");
}

/// Asserts that one state takes most of a step that is long enough.
fn assert_longest(name: &str, (states, step): &(Vec<Span>, Span)) {
    let length = |span: &Span| span.end - span.start;
    let longest = states.iter().max_by_key(|state| length(state)).unwrap();
    assert_eq!(longest.name, name, "{states:?}");
    assert!(length(longest) * 10 >= length(step) * 9, "{states:?}");
    assert!(length(step) >= u64::try_from(LATE.as_nanos()).unwrap() * 9 / 10, "{step:?}");
}

/// Gives the current thread priority over all threads of other classes.
fn prioritize() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters outlive the call, which changes only the scheduling class of this thread.
    let failed = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

/// Reads on a CPU that another thread does not leave after it has sent a packet.
fn read_without_cpu(client: &TcpStream, server: &TcpStream) -> Slow {
    let ends = [server.local_addr().unwrap(), server.peer_addr().unwrap()];
    let send = || {
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                on_one_cpu();
                read(server)
            });
            let sender = || {
                on_one_cpu();
                prioritize();
                // The reader sleeps in its call.
                thread::sleep(Duration::from_millis(20));
                let sent = (&*client).write(&[0x55; LENGTH]).unwrap();
                spin(LATE);
                sent
            };
            let sent = scope.spawn(sender).join().unwrap();
            assert_eq!(reader.join().unwrap(), sent);
            sent
        })
    };
    let slow = Slow::exchange(ends, send, || (), || LENGTH);
    // The read took place during the send.
    Slow { read: slow.sent, ..slow }
}

#[test]
fn the_wait_is_divided_into_the_states_of_the_reader() {
    let Some(_alone) = alone("states of a reader") else { return };
    let sidecar = Sidecar::configured(&settings("reader_states: true"));
    if served_by(&sidecar.snapshot(), "socket_read").is_none() {
        return skip("states of a reader: nothing serves socket_read");
    }
    let (client, server) = stream(&Wire::loopback(Version::Ipv4));
    assert_longest(ASLEEP, &states(&sidecar, &client, &server, || thread::sleep(LATE)));
    assert_longest(RUNNING, &states(&sidecar, &client, &server, || spin(LATE)));
    assert_longest(RUNNABLE, &states_of(&sidecar, &read_without_cpu(&client, &server)));
}
