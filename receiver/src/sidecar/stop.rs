//! The end of the sidecar.

use std::time::Duration;

use tokio::signal::unix::{Signal as Notification, SignalKind, signal};

use super::StartError;
use crate::{config::Settings, watchdog::Watchdog};

/// An interval without ticks.
const NEVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Waits for SIGINT, SIGTERM or the end of the configured duration, without measurements.
///
/// # Errors
/// If signal handlers cannot be installed.
pub async fn idle(settings: &Settings) -> Result<(), StartError> {
    let end = settings.duration.as_ref().map(|span| tokio::time::Instant::now() + span.get());
    let mut stop = Stop::listen()?;
    // The service manager expects no ticks.
    let mut watchdog = Watchdog::start(NEVER);
    loop {
        tokio::select! {
            () = stop.wait(end) => return Ok(()),
            () = watchdog.due() => watchdog.feed(),
        }
    }
}

/// The conditions that end the sidecar.
pub(super) struct Stop {
    interrupt: Notification,
    terminate: Notification,
}

impl Stop {
    pub(super) fn listen() -> Result<Self, StartError> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(StartError::Signals)?,
            terminate: signal(SignalKind::terminate()).map_err(StartError::Signals)?,
        })
    }

    pub(super) async fn wait(&mut self, end: Option<tokio::time::Instant>) {
        let duration = async {
            match end {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = duration => {}
        }
    }
}
