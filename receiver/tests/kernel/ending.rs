//! Tests that the sidecar ends soon and leaves nothing behind, however it ends.

use std::{net::TcpListener, time::Duration};

use rustix::process::Signal;

use super::support::{
    attached::{assert_nothing_left, attached, left},
    sidecar::Sidecar,
    surroundings::{alone, often, patience},
};

/// The documented limit.
const SOON: Duration = Duration::from_secs(2);

fn ends_in_order(signal: Signal) {
    let mut sidecar = Sidecar::start("1h");
    let attached = attached(sidecar.pid());
    assert_eq!(left(&attached), attached, "its programs and links exist");
    assert!(attached.links.len() >= 3, "{attached:?}");
    let (status, took) = sidecar.signal(signal);
    eprintln!("{signal:?}: {status} after {took:?}");
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(took <= patience(SOON), "it took {took:?}");
    assert_eq!(sidecar.lines().len(), 1, "the last snapshot was not written");
    assert_nothing_left(&attached, patience(Duration::from_secs(1)));
}

#[test]
fn sigint_flushes_and_detaches() {
    let Some(_alone) = alone("SIGINT") else { return };
    ends_in_order(Signal::INT);
}

#[test]
fn sigterm_flushes_and_detaches() {
    let Some(_alone) = alone("SIGTERM") else { return };
    ends_in_order(Signal::TERM);
}

#[test]
fn a_collector_that_never_answers_does_not_hold_up_the_end() {
    let Some(_alone) = alone("a silent collector") else { return };
    // The kernel accepts connections that the listener never takes.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())];
    let mut sidecar = Sidecar::start_with(often(), &["--output", "otlp"], &variables);
    let (_connection, _) = silent.accept().unwrap();
    sidecar.snapshot();
    let attached = attached(sidecar.pid());
    let (status, took) = sidecar.signal(Signal::TERM);
    eprintln!("silent collector: {status} after {took:?}");
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(took <= patience(SOON), "it took {took:?}");
    assert_nothing_left(&attached, patience(Duration::from_secs(1)));
}

#[test]
fn nothing_stays_attached_after_a_kill() {
    let Some(_alone) = alone("SIGKILL") else { return };
    let mut sidecar = Sidecar::start("1h");
    let attached = attached(sidecar.pid());
    assert!(attached.links.len() >= 3 && attached.programs.len() >= 3, "{attached:?}");
    let (status, _) = sidecar.signal(Signal::KILL);
    assert_eq!(status.code(), None);
    assert_nothing_left(&attached, patience(Duration::from_secs(1)));
}
