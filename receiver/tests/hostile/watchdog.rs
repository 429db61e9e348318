//! The service manager's watchdog.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt as _, net::UnixDatagram},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    sidecar::Sidecar,
    status::part,
    surroundings::{alone, often, patience, wait_for},
};

/// The service manager's limit in microseconds.
const LIMIT: &str = "1000000";

/// Receives messages until one contains this text.
fn receive(manager: &UnixDatagram, text: &str) {
    wait_for(text, patience(Duration::from_secs(5)), || {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).ok()?;
        str::from_utf8(&message[..length]).unwrap().lines().any(|line| line == text).then_some(())
    });
}

#[test]
fn a_stopped_measurement_sends_no_watchdog_message() {
    let Some(_alone) = alone("the watchdog") else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    // Like systemd's socket, writable for every user.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&socket, Permissions::from_mode(0o777)).unwrap();
    let variables = [("NOTIFY_SOCKET", socket.to_str().unwrap()), ("WATCHDOG_USEC", LIMIT)];
    let sidecar = Sidecar::start_with(often(), &[], &variables);
    receive(&manager, "READY=1");
    (0..3).for_each(|_| receive(&manager, "WATCHDOG=1"));

    let loader = Pid::from_raw(part(sidecar.pid(), "uc-loader").unwrap().cast_signed()).unwrap();
    kill_process(loader, Signal::STOP).unwrap();
    let quiet = wait_for("silence", patience(Duration::from_secs(5)), || {
        let start = Instant::now();
        manager.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        manager.recv(&mut [0; 256]).is_err().then(|| start.elapsed())
    });
    assert!(quiet >= Duration::from_secs(1), "the service manager restarts the sidecar");
    kill_process(loader, Signal::CONT).unwrap();
    receive(&manager, "WATCHDOG=1");
    sidecar.snapshot();
    sidecar.stop();
}
