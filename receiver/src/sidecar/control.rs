//! The control thread. It runs the outputs, handles signals and serves the watchdog while the main thread measures. The main thread
//! makes blocking calls to the loader and the reader, so a process that was stopped holds up measurements only.

use std::{
    io,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime::{EnterGuard, Runtime},
    sync::{mpsc, oneshot},
};

use super::{
    StartError,
    stop::{Notice, Stop},
};
use crate::{config::Settings, exit, watchdog::Watchdog};

/// The time for the last snapshot and for detaching, which take much less unless a part does not respond.
const REACTION: Duration = Duration::from_secs(5);
/// The time for pending name resolutions at the end.
const PENDING: Duration = Duration::from_millis(50);
/// Keeps the thread for name resolutions, because tokio panics if it cannot start the first one.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The runtime of the control thread, before the thread exists.
pub struct Control(Runtime);

/// The running control thread. Dropping the value ends it.
pub struct RunningControl {
    notices: mpsc::Receiver<Delivered>,
    is_measuring: Option<oneshot::Sender<()>>,
    /// Dropped before the thread is joined.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A notice for the main thread, which acknowledges it by dropping the value.
pub(super) struct Delivered {
    pub(super) notice: Notice,
    _taken: oneshot::Sender<()>,
}

impl Control {
    /// Creates the runtime. No thread runs yet.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new() -> io::Result<Self> {
        tokio::runtime::Builder::new_current_thread().enable_all().thread_keep_alive(FOR_EVER).build().map(Self)
    }

    /// Makes this runtime the one that outputs use.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.0.enter()
    }

    /// Starts the thread. The end of the sidecar is now in order at any time.
    ///
    /// # Errors
    /// If signal handlers cannot be installed, or no thread can be started.
    pub fn start(self, settings: &Settings, watchdog: Watchdog) -> Result<RunningControl, StartError> {
        // tokio panics if it cannot start its first thread for name resolutions.
        thread::Builder::new().spawn(|| ()).map_err(StartError::Thread)?.join().ok();
        let Self(runtime) = self;
        drop(runtime.spawn_blocking(|| ()));
        let stop = {
            let _entered = runtime.enter();
            Stop::listen(settings)?
        };
        let ((send, notices), (is_measuring, measuring), (end, ended)) =
            (mpsc::channel(1), oneshot::channel(), oneshot::channel());
        let thread = thread::Builder::new().name("control".to_owned()).spawn(move || {
            runtime.block_on(run(stop, watchdog, send, measuring, ended));
            runtime.shutdown_timeout(PENDING);
        });
        let thread = Some(thread.map_err(StartError::Thread)?);
        Ok(RunningControl { notices, is_measuring: Some(is_measuring), end: Some(end), thread })
    }
}

impl RunningControl {
    /// Notes that measurements begin.
    pub(super) fn begin(&mut self) {
        // The thread has ended if the send fails.
        let _ = self.is_measuring.take().map(|begun| begun.send(()));
    }

    /// Waits for the next notice. Cancel safe.
    pub(super) async fn notice(&mut self) -> Delivered {
        match self.notices.recv().await {
            Some(notice) => notice,
            None => std::future::pending().await,
        }
    }
}

impl Drop for RunningControl {
    fn drop(&mut self) {
        drop(self.end.take());
        // The thread ends soon.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Passes notices to the main thread, and feeds the watchdog. Ends the process if the main thread does not react to the end.
async fn run(
    mut stop: Stop,
    watchdog: Watchdog,
    notices: mpsc::Sender<Delivered>,
    mut measuring: oneshot::Receiver<()>,
    mut ended: oneshot::Receiver<()>,
) {
    loop {
        tokio::select! {
            _ = &mut ended => return,
            () = watchdog.due() => watchdog.feed(),
            notice = stop.notice() => {
                let (taken, was_taken) = oneshot::channel();
                // The main thread has ended if the send fails.
                let _ = notices.try_send(Delivered { notice, _taken: taken });
                let has_ended = async { tokio::select! { _ = was_taken => false, _ = &mut ended => true } };
                if notice == Notice::End {
                    match tokio::time::timeout(REACTION, has_ended).await {
                        Ok(false) => {}
                        // The receiver must not be polled again.
                        Ok(true) => return,
                        Err(_) => give_up(measuring.try_recv().is_ok()),
                    }
                }
            }
        }
    }
}

/// Ends the process. The loader detaches all programs once its channel closes.
fn give_up(is_measuring: bool) -> ! {
    let status = if is_measuring {
        tracing::error!(
            "the measurement does not end, so the last snapshot is missing: another process may have stopped the loader or \
             the reader"
        );
        exit::CANNOT_RUN
    } else {
        tracing::info!("ended before all programs were attached");
        0
    };
    std::process::exit(status.into())
}
