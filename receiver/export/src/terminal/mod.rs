//! The screen of a terminal: pages that keys switch, sort, filter and scroll.

mod app;
mod draw;
mod modes;
pub(crate) mod pages;
#[cfg(test)]
mod tests;

use std::{io, num::NonZeroUsize, sync::Arc, thread};

use crossterm::event::{self, Event};
use ratatui::{Terminal as Drawn, backend::CrosstermBackend};
use tokio::{sync::mpsc, time::Instant};

pub use self::modes::{Log, Terminal};
use self::{
    app::{App, Effect},
    draw::{Styles, draw},
};
use crate::{
    Bus, Output, Published, Statistics, Subscription, Topics,
    health::Health,
    telemetry::Snapshot,
    view::{Recent, Selection, View},
};

/// The number of keys that wait for a draw.
const WAITING_KEYS: usize = 64;

/// Opens the screen on a terminal, and subscribes it to the bus. `cpus` is the node's number of online CPUs. Requires a tokio runtime.
#[must_use]
pub fn open(bus: &Bus, terminal: &Terminal, cpus: Option<NonZeroUsize>, selection: &Selection) -> Output {
    let statistics = Statistics::new("table");
    let subscription = bus.subscribe(Topics::SHOWN, &statistics);
    let screen = Screen {
        terminal: terminal.clone(),
        statistics: statistics.clone(),
        health: Health::new(statistics.output()),
        cpus,
        app: App::new(selection),
        // The keys change the filter and the order.
        selection: Selection { workload: None, sort: None, ..selection.clone() },
        styles: Styles::of_environment(),
        previous: None,
        recent: Recent::default(),
    };
    Output::in_thread(statistics, move || screen.run(subscription))
}

struct Screen {
    terminal: Terminal,
    statistics: Statistics,
    health: Health,
    cpus: Option<NonZeroUsize>,
    selection: Selection,
    app: App,
    styles: Styles,
    previous: Option<Arc<Snapshot>>,
    recent: Recent,
}

/// The terminal that ratatui draws on.
type Canvas = Drawn<CrosstermBackend<io::Stdout>>;

impl Screen {
    /// Draws until the bus is closed. The terminal is restored at the end, and at a panic.
    fn run(mut self, subscription: Subscription) {
        let runtime = match tokio::runtime::Builder::new_current_thread().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!("cannot draw on the terminal: {error}"),
        };
        let restored = Restored(self.terminal.clone());
        let canvas = self.terminal.enter().and_then(|()| Drawn::new(CrosstermBackend::new(io::stdout())));
        match canvas {
            Ok(canvas) => runtime.block_on(self.draw_until_the_end(subscription, canvas)),
            Err(error) => tracing::error!("cannot draw on the terminal: {error}; `| cat` shows the table as text"),
        }
        drop(restored);
    }

    async fn draw_until_the_end(&mut self, mut subscription: Subscription, mut canvas: Canvas) {
        let mut events = events();
        self.redraw(&mut canvas);
        loop {
            tokio::select! {
                published = subscription.next() => match published {
                    Some(Published::Spans(batch)) => self.recent.add(&batch),
                    Some(Published::Snapshot(snapshot)) => self.show(snapshot, &mut canvas),
                    None => return,
                },
                event = events.recv() => match event {
                    Some(event) => {
                        let effect = self.app.event(&event);
                        self.redraw(&mut canvas);
                        if effect == Effect::End {
                            end();
                        }
                    }
                    // Without keys, the screen still shows the measurements.
                    None => events = pending(),
                },
            }
        }
    }

    fn show(&mut self, current: Arc<Snapshot>, canvas: &mut Canvas) {
        let began = Instant::now();
        let view = View::selected(self.previous.as_deref(), &current, &self.recent, self.cpus, &self.selection);
        self.app.add(view);
        let drawn = self.redraw(canvas);
        let reason = (!drawn).then_some("write_error");
        self.statistics.points(reason, current.points());
        self.statistics.exported(reason, began.elapsed());
        // A failed draw is not repeated: the next one shows the next interval.
        self.statistics.settled(current.time);
        self.previous = Some(current);
    }

    /// Returns true if the terminal accepted the screen.
    fn redraw(&mut self, canvas: &mut Canvas) -> bool {
        self.app.log(self.terminal.last_line());
        match canvas.draw(|frame| draw(frame, &mut self.app, self.styles)) {
            Ok(_) => self.health.works(),
            Err(error) => {
                self.health.failed("write_error", &format!("cannot write to the terminal: {error}"));
                return false;
            }
        }
        true
    }
}

/// Restores the terminal when it is dropped.
struct Restored(Terminal);

impl Drop for Restored {
    fn drop(&mut self) {
        self.0.restore();
    }
}

/// Returns the keys and the changes of size, which a thread reads until the process ends.
fn events() -> mpsc::Receiver<Event> {
    let (send, events) = mpsc::channel(WAITING_KEYS);
    let read = move || {
        while let Ok(event) = event::read() {
            if send.blocking_send(event).is_err() {
                return;
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("keys".to_owned()).spawn(read) {
        tracing::warn!("cannot read the keys of the terminal: {error}; check the limits on tasks of this process");
    }
    events
}

/// Returns a channel that never closes and has no events.
fn pending() -> mpsc::Receiver<Event> {
    let (send, events) = mpsc::channel(1);
    std::mem::forget(send);
    events
}

/// Ends the sidecar as Ctrl-C does on a terminal with its usual modes.
fn end() {
    // SAFETY: the call has an integer argument. The sidecar handles the signal in its control thread.
    unsafe { libc::raise(libc::SIGINT) };
}
