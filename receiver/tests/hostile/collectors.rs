//! Collectors that answer with endless HTTP/2 frames.

use std::{
    io::{self, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::Signal;

use crate::support::{
    http2::{CONTINUATION, DATA, END_HEADERS, HEADERS, PING, RESPONSE, SETTINGS, frame, greet, receive},
    sidecar::Sidecar,
    status::Status,
    surroundings::{alone, often, patience, wait_for},
};

/// Snapshots during an attack.
const SNAPSHOTS: usize = 10;
/// The memory that an attack may add to the worker, in kilobytes.
const GROWTH: u64 = 8 << 10;

/// Sends the first bytes once the client has opened a stream, then sends the others until the client disconnects.
fn attack(mut client: TcpStream, first: &[u8], others: &[u8], sent: &AtomicU64) -> io::Result<()> {
    greet(&mut client)?;
    while receive(&mut client)?.kind != HEADERS {}
    let mut incoming = client.try_clone()?;
    thread::spawn(move || io::copy(&mut incoming, &mut io::sink()));
    client.write_all(first)?;
    loop {
        client.write_all(others)?;
        sent.fetch_add(1, Ordering::Relaxed);
    }
}

/// Exports to a collector with this attack.
fn survives(name: &str, first: Vec<u8>, others: Vec<u8>) {
    let Some(_alone) = alone(name) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let sent = Arc::<AtomicU64>::default();
    let total = Arc::clone(&sent);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (first, others, sent) = (first.clone(), others.clone(), Arc::clone(&total));
            thread::spawn(move || attack(client, &first, &others, &sent));
        }
    });
    let mut sidecar =
        Sidecar::start_with(often(), &["--output", "otlp"], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    let memory = || Status::of_process(sidecar.pid()).unwrap().number("RssAnon");
    let before = memory();
    wait_for("frames", patience(Duration::from_secs(10)), || (sent.load(Ordering::Relaxed) > 0).then_some(()));
    let most = (0..SNAPSHOTS).map(|_| (sidecar.snapshot(), memory()).1).max().unwrap();
    eprintln!("{name}: {before} kB before, {most} kB at most, {} writes", sent.load(Ordering::Relaxed));
    assert!(most <= before + GROWTH, "{before} kB before, {most} kB at most");
    let (status, took) = sidecar.signal(Signal::TERM);
    assert!(status.success() && took <= patience(Duration::from_secs(3)), "{status} after {took:?}");
}

#[test]
fn endless_headers_are_survived() {
    let first = frame(HEADERS, 0, 1, RESPONSE);
    survives("endless headers", first, frame(CONTINUATION, 0, 1, &b"\x00\x01a\x01b".repeat(1000)));
}

#[test]
fn empty_continuations_are_survived() {
    survives("empty continuations", frame(HEADERS, 0, 1, RESPONSE), frame(CONTINUATION, 0, 1, &[]).repeat(100));
}

#[test]
fn endless_empty_data_is_survived() {
    survives("empty data", frame(HEADERS, END_HEADERS, 1, RESPONSE), frame(DATA, 0, 1, &[]).repeat(100));
}

#[test]
fn an_unfinished_message_is_survived() {
    let announced = [&[0][..], &u32::MAX.to_be_bytes()].concat();
    let first = [frame(HEADERS, END_HEADERS, 1, RESPONSE), frame(DATA, 0, 1, &announced)].concat();
    survives("an unfinished message", first, frame(DATA, 0, 1, &[0x55; 1000]));
}

#[test]
fn endless_pings_are_survived() {
    survives("pings", Vec::new(), frame(PING, 0, 0, &[0; 8]).repeat(100));
}

#[test]
fn endless_settings_are_survived() {
    survives("settings", Vec::new(), frame(SETTINGS, 0, 0, &[]).repeat(100));
}
