//! The local endpoint for health checks: `/healthz` reflects the ticks of the measurement, `/readyz` the delivery too.

use http::StatusCode;

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

    /// Returns the answer to a request for a path: the status, and a line for people. Returns `None` for other paths.
    #[must_use]
    pub fn answer(&self, path: &str) -> Option<(StatusCode, String)> {
        let problem = match path {
            "/healthz" => self.ticks(),
            "/readyz" => self.ticks().and_then(|()| self.delivery()),
            _ => return None,
        };
        Some(match problem {
            Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
            Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
        })
    }

    fn ticks(&self) -> Result<(), String> {
        if self.watchdog.is_late() { Err("the measurement does not tick".to_owned()) } else { Ok(()) }
    }

    /// Returns the first output whose last export failed, or that has not exported anything. Leaves out outputs for readers.
    fn delivery(&self) -> Result<(), String> {
        if !self.watchdog.is_ready() {
            return Err("starting: programs are not attached yet".to_owned());
        }
        self.outputs.iter().filter(|statistics| !statistics.is_read()).try_for_each(|statistics| {
            match statistics.totals().last {
                Some(None) => Ok(()),
                Some(Some(reason)) => Err(format!("output `{}` fails: {reason}", statistics.output())),
                None => Err(format!("output `{}` has delivered nothing yet", statistics.output())),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc, time::Duration};

    use super::*;
    use crate::{
        export::{Bus, Outputs, json},
        telemetry::{Snapshot, UnixNanos},
    };

    const INTERVAL: Duration = Duration::from_secs(10);

    fn answer(health: &Health, path: &str) -> (u16, String) {
        health.answer(path).map_or((404, String::new()), |(status, text)| (status.as_u16(), text))
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
}
