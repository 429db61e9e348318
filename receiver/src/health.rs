//! The local endpoint for health checks: `/healthz` reflects the ticks of the measurement, `/readyz` the delivery too.

mod listener;
mod server;

use http::StatusCode;

pub use self::listener::{ListenError, Listener};
use crate::{export::Statistics, watchdog::Watchdog};

/// The state of the sidecar.
#[derive(Clone)]
pub struct Health {
    watchdog: Watchdog,
    outputs: Vec<Statistics>,
}

impl Health {
    /// Observes the ticks and the outputs.
    #[must_use]
    pub const fn new(watchdog: Watchdog, outputs: Vec<Statistics>) -> Self {
        Self { watchdog, outputs }
    }

    /// Returns the answer to a request for a path: the status, and a line for people.
    fn answer(&self, path: &str) -> (StatusCode, String) {
        let problem = match path {
            "/healthz" => self.ticks(),
            "/readyz" => self.ticks().and_then(|()| self.delivery()),
            _ => return (StatusCode::NOT_FOUND, "the paths are /healthz and /readyz\n".to_owned()),
        };
        match problem {
            Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
            Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
        }
    }

    fn ticks(&self) -> Result<(), String> {
        if self.watchdog.is_late() { Err("the measurement does not tick".to_owned()) } else { Ok(()) }
    }

    /// Returns the first output whose last export failed, or that has not exported anything.
    fn delivery(&self) -> Result<(), String> {
        if !self.watchdog.is_ready() {
            return Err("starting: programs are not attached yet".to_owned());
        }
        self.outputs.iter().try_for_each(|statistics| match statistics.totals().last {
            Some(None) => Ok(()),
            Some(Some(reason)) => Err(format!("output `{}` fails: {reason}", statistics.output())),
            None => Err(format!("output `{}` has delivered nothing yet", statistics.output())),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};

    use tokio::{
        io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
        net::{TcpStream, UnixStream},
    };

    use super::*;
    use crate::{
        export::{Bus, Outputs, json},
        options::LocalAddress,
        telemetry::{Snapshot, UnixNanos},
    };

    const INTERVAL: Duration = Duration::from_secs(10);

    fn answer(health: &Health, path: &str) -> (u16, String) {
        let (status, text) = health.answer(path);
        (status.as_u16(), text)
    }

    #[tokio::test(start_paused = true)]
    async fn health_reflects_ticks() {
        let watchdog = Watchdog::new(INTERVAL);
        let health = Health::new(watchdog.clone(), Vec::new());
        tokio::time::advance(INTERVAL * 10).await;
        assert_eq!(answer(&health, "/healthz"), (200, "ok\n".to_owned()), "programs are being attached");
        assert_eq!(answer(&health, "/readyz").0, 503);
        watchdog.ready();
        for (elapsed, status) in [(29, 200), (2, 503)] {
            tokio::time::advance(Duration::from_secs(elapsed)).await;
            assert_eq!([answer(&health, "/healthz").0, answer(&health, "/readyz").0], [status; 2]);
        }
        watchdog.tick();
        assert_eq!(
            [answer(&health, "/healthz").0, answer(&health, "/readyz").0, answer(&health, "/").0],
            [200, 200, 404]
        );
    }

    /// Publishes a snapshot to an output with this file, and returns the answers for `/readyz` before and after its export.
    async fn readiness(file: &Path) -> [(u16, String); 2] {
        let bus = Bus::default();
        let output = json::open(&bus, json::Target::File(file.to_owned())).expect("an output");
        let outputs = Outputs::new(bus, vec![output]);
        let watchdog = Watchdog::new(INTERVAL);
        watchdog.ready();
        let health = Health::new(watchdog, outputs.statistics());
        let before = answer(&health, "/readyz");
        outputs.bus().publish(&Arc::new(Snapshot { time: UnixNanos(1), resources: Vec::new() }));
        outputs.shutdown(Duration::from_secs(20)).await.expect("no failure");
        [before, answer(&health, "/readyz")]
    }

    #[tokio::test]
    async fn readiness_reflects_the_delivery() {
        let folder = tempfile::tempdir().expect("a folder");
        let [before, after] = readiness(&folder.path().join("lines.json")).await;
        assert_eq!(before, (503, "output `json` has delivered nothing yet\n".to_owned()));
        assert_eq!(after, (200, "ok\n".to_owned()));
    }

    /// Sends a request, and returns the first line of the response.
    async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
        stream.write_all(format!("{request} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.expect("sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).await.expect("the server closes the connection");
        response.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn either_address_answers() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("health.sock");
        let watchdog = Watchdog::new(INTERVAL);
        watchdog.ready();
        let health = Health::new(watchdog, Vec::new());
        // A socket that an ended process left.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
        let unix = LocalAddress::Unix(path.clone());
        Listener::open(&unix).expect("a listener").serve(health.clone()).expect("served");
        let mode = std::fs::metadata(&path).expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o666, "every user may connect");
        let stream = || async { UnixStream::connect(&path).await.expect("a connection") };
        assert_eq!(ask(stream().await, "GET /healthz").await, "HTTP/1.1 200 OK");
        assert_eq!(ask(stream().await, "POST /healthz").await, "HTTP/1.1 405 Method Not Allowed");
        assert!(ask(stream().await, "SSH-2.0").await.starts_with("HTTP/1.1 400"));
        let error = Listener::open(&unix).err().expect("the address is in use").to_string();
        assert!(error.contains("health.sock") && error.ends_with("in `health.listen`"), "{error}");

        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
        let listener = Listener::open(&LocalAddress::Tcp(free)).expect("a listener");
        listener.serve(health).expect("served");
        let stream = TcpStream::connect(free).await.expect("a connection");
        assert_eq!(ask(stream, "GET /nothing").await, "HTTP/1.1 404 Not Found");
    }
}
