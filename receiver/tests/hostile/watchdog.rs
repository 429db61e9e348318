//! The service manager's watchdog, and other duties while the measurement is blocked.

use std::{
    fs::{self, Permissions},
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, net::UnixDatagram},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    attached::{assert_nothing_left, attached},
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

/// Returns the status of a health check.
fn check(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    response.split(' ').nth(1).map(str::to_owned)
}

#[test]
fn health_checks_fail_while_the_measurement_is_stopped() {
    let Some(_alone) = alone("health checks") else { return };
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap().to_string();
    let configuration = format!("health: {{listen: '{address}'}}\ninterval: {}\n", often());
    let sidecar = Sidecar::configured(&configuration);
    let status = |path: &str, status: &str| {
        wait_for(&format!("{status} for {path}"), patience(Duration::from_secs(10)), || {
            (check(&address, path)? == status).then_some(())
        });
    };
    ["/healthz", "/readyz"].iter().for_each(|path| status(path, "200"));
    let loader = Pid::from_raw(part(sidecar.pid(), "uc-loader").unwrap().cast_signed()).unwrap();
    kill_process(loader, Signal::STOP).unwrap();
    ["/healthz", "/readyz"].iter().for_each(|path| status(path, "503"));
    kill_process(loader, Signal::CONT).unwrap();
    ["/healthz", "/readyz"].iter().for_each(|path| status(path, "200"));
    sidecar.stop();
}

/// Waits until the sidecar has written no snapshot for five intervals.
fn wait_for_silence(sidecar: &Sidecar) {
    let silence = Duration::from_millis(2500);
    let mut last = (sidecar.lines().len(), Instant::now());
    wait_for("a blocked tick", patience(Duration::from_secs(20)), || {
        let count = sidecar.lines().len();
        if count != last.0 {
            last = (count, Instant::now());
        }
        (last.1.elapsed() >= silence).then_some(())
    });
}

#[test]
fn a_loader_that_does_not_respond_holds_up_neither_deliveries_nor_the_end() {
    let Some(_alone) = alone("a stopped loader") else { return };
    // The kernel accepts a connection, which nobody serves.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_LOGS_EXPORTER", "none")];
    let mut sidecar = Sidecar::start_with(often(), &["--output", "otlp"], &variables);
    let (connection, _) = listener.accept().unwrap();
    let attached = attached(sidecar.pid());
    let loader = Pid::from_raw(part(sidecar.pid(), "uc-loader").unwrap().cast_signed()).unwrap();
    kill_process(loader, Signal::STOP).unwrap();
    wait_for_silence(&sidecar);
    // The delivery connects again while the measurement waits for the loader.
    drop(connection);
    listener.set_nonblocking(true).unwrap();
    wait_for("another connection", patience(Duration::from_secs(5)), || listener.accept().ok());
    let (status, took) = sidecar.signal(Signal::TERM);
    kill_process(loader, Signal::CONT).unwrap();
    assert_eq!(status.code(), Some(3), "{status}");
    assert!(took <= patience(Duration::from_secs(7)), "it took {took:?}");
    assert_nothing_left(&attached, patience(Duration::from_secs(5)));
}

#[test]
fn nothing_stays_attached_if_the_loader_does_not_notice_the_end() {
    let Some(_alone) = alone("a stopped loader without its worker") else { return };
    let mut sidecar = Sidecar::start(often());
    let attached = attached(sidecar.pid());
    let loader = Pid::from_raw(part(sidecar.pid(), "uc-loader").unwrap().cast_signed()).unwrap();
    kill_process(loader, Signal::STOP).unwrap();
    sidecar.signal(Signal::KILL);
    assert_nothing_left(&attached, patience(Duration::from_secs(1)));
}
