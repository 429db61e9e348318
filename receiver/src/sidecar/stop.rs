//! The end of the sidecar.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use tokio::signal::unix::{Signal as Notification, SignalKind, signal};

use super::StartError;
use crate::{config::Settings, health::Health, listen::Endpoints, watchdog::Watchdog};

/// An interval without ticks.
const NEVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Waits for SIGINT, SIGTERM or the end of the configured duration, without measurements. Health checks succeed.
///
/// # Errors
/// If signal handlers or the endpoints cannot be installed.
pub async fn idle(settings: &Settings, endpoints: Endpoints) -> Result<(), StartError> {
    let end = settings.duration.as_ref().map(|span| tokio::time::Instant::now() + span.get());
    let mut stop = Stop::listen(settings)?;
    // The service manager expects no ticks.
    let watchdog = Watchdog::new(NEVER);
    watchdog.ready();
    let health = Health::new(watchdog.clone(), Vec::new());
    endpoints.serve(health, None).map_err(StartError::Endpoints)?;
    loop {
        tokio::select! {
            () = wait_until(end) => return Ok(()),
            notice = stop.notice() => match notice {
                Notice::End => return Ok(()),
                Notice::Hangup => tracing::info!("SIGHUP: nothing to reload, because nothing is measured"),
            },
            () = watchdog.due() => watchdog.feed(),
        }
    }
}

/// Waits for a time; pending forever without one.
pub(super) async fn wait_until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The effect of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The sidecar ends.
    End,
    /// SIGHUP: the sidecar continues.
    Hangup,
}

/// The signals that end the sidecar, and the signal that does not.
pub(super) struct Stop {
    interrupt: Notification,
    terminate: Notification,
    hangup: Notification,
    /// True if the outputs end with the terminal.
    is_interactive: bool,
}

impl Stop {
    pub(super) fn listen(settings: &Settings) -> Result<Self, StartError> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(StartError::Signals)?,
            terminate: signal(SignalKind::terminate()).map_err(StartError::Signals)?,
            hangup: signal(SignalKind::hangup()).map_err(StartError::Signals)?,
            is_interactive: settings.outputs.has_table() && io::stdout().is_terminal(),
        })
    }

    /// Waits for the next notice. SIGHUP ends a sidecar with the table on a terminal, because the terminal is closed. Cancel
    /// safe.
    pub(super) async fn notice(&mut self) -> Notice {
        tokio::select! {
            _ = self.interrupt.recv() => Notice::End,
            _ = self.terminate.recv() => Notice::End,
            _ = self.hangup.recv() => if self.is_interactive { Notice::End } else { Notice::Hangup },
        }
    }
}
