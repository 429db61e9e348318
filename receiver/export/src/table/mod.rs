//! A live table of the last interval for people at a terminal.

mod layout;
mod screen;
#[cfg(test)]
mod tests;
mod text;

pub use screen::{Log, Terminal};

use std::{
    io::ErrorKind,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anstyle::Style;
use tokio::time::Instant;

use self::{
    layout::{INDENT, lines, wrap},
    screen::{colour, size_of_stdout},
    text::{cut, width},
};
use super::{Bus, Output, Published, Statistics, Subscription, Topics, health::Health};
use crate::{
    telemetry::Snapshot,
    view::{Notice, Quantity, Recent, Section, View},
};

/// The layout of the table.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The number of characters on a line.
    pub width: usize,
    /// The number of online CPUs, if known. CPU shares are then also displayed as shares of the node.
    pub cpus: Option<NonZeroUsize>,
    /// True to use bold and dim text.
    pub colour: bool,
}

/// Opens the table on standard output, and subscribes it to the bus. `cpus` is the node's number of online CPUs. Requires a tokio runtime.
#[must_use]
pub fn open(bus: &Bus, terminal: &Terminal, cpus: Option<NonZeroUsize>) -> Output {
    let statistics = Statistics::new("table");
    let (counted, terminal) = (statistics.clone(), terminal.clone());
    let subscription = bus.subscribe(Topics::SHOWN, &statistics);
    Output::in_thread(statistics, move || run(subscription, &terminal, cpus, &counted))
}

fn run(mut subscription: Subscription, terminal: &Terminal, cpus: Option<NonZeroUsize>, statistics: &Statistics) {
    let kind = terminal.screen().kind();
    let mut health = Health::new(statistics.output());
    let mut previous: Option<Arc<Snapshot>> = None;
    let mut recent = Recent::default();
    while let Some(published) = subscription.blocking_next() {
        let current = match published {
            Published::Snapshot(current) => current,
            Published::Spans(batch) => {
                recent.add(&batch);
                continue;
            }
        };
        let began = Instant::now();
        let size = size_of_stdout(kind);
        let layout = Layout { width: size.width, cpus, colour: colour(kind) };
        let block = render(previous.as_deref(), &current, &recent, layout);
        // Not inside the match: log messages there take the same lock.
        let drawn = terminal.screen().draw(&block, size);
        match drawn {
            Ok(()) => {
                statistics.points(None, current.points());
                statistics.exported(None, began.elapsed());
                health.works();
            }
            // The reader closed the pipe.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return,
            Err(error) => {
                const REASON: &str = "write_error";
                statistics.points(Some(REASON), current.points());
                statistics.exported(Some(REASON), began.elapsed());
                health.failed(REASON, &format!("cannot write the table to standard output: {error}"));
            }
        }
        // A failed draw is not repeated: the next table shows the next interval.
        statistics.settled(current.time);
        previous = Some(current);
    }
}

/// Formats the changes between two snapshots, or since the start without a previous one. Lines have at most
/// `layout.width` columns, and the last line has no line feed.
fn render(previous: Option<&Snapshot>, current: &Snapshot, recent: &Recent, layout: Layout) -> String {
    let view = View::new(previous, current, recent, layout.cpus);
    let mut page = Page { lines: Vec::new(), layout };
    page.head(&view);
    view.sections.iter().for_each(|section| page.section(section));
    page.notices(&view.notices);
    page.lines.join("\n")
}

struct Page {
    lines: Vec<String>,
    layout: Layout,
}

impl Page {
    fn head(&mut self, view: &View) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(view.time.0);
        let time = humantime::format_rfc3339_seconds(time);
        let span = match view.seconds {
            Some(seconds) => format!("over {}", Quantity::seconds(seconds)),
            None => "since the start".to_owned(),
        };
        let host = view.host.as_ref().map_or_else(String::new, |host| format!("  {host}"));
        let version = env!("CARGO_PKG_VERSION");
        self.styled(&format!("undercurrent {version}{host}  {time}  {span}"), Style::new().dimmed());
    }

    fn section(&mut self, section: &Section) {
        self.gap();
        let title = cut(&section.title, self.layout.width);
        let room = self.layout.width.saturating_sub(width(&title) + 2);
        let description = if room > 8 { cut(section.description, room) } else { "".into() };
        let title = self.paint(&title, Style::new().bold());
        let description = self.paint(&description, Style::new().dimmed());
        self.lines.push(format!("{title}  {description}").trim_end().to_owned());
        let mut lines = lines(&section.columns, &section.rows, self.layout.width).into_iter();
        if let Some(headings) = lines.next() {
            self.styled(&headings, Style::new().dimmed());
        }
        self.lines.extend(lines);
        if let Some(rest) = &section.rest {
            self.lines.push(cut(&format!("{}{rest}", " ".repeat(INDENT)), self.layout.width).into_owned());
        }
    }

    fn notices(&mut self, notices: &[Notice]) {
        if !notices.is_empty() {
            self.gap();
        }
        for Notice { title, remarks, .. } in notices {
            let remarks: Vec<String> = remarks.iter().map(ToString::to_string).collect();
            self.lines.extend(wrap(&format!("{title}:"), &remarks, self.layout.width));
        }
    }

    fn gap(&mut self) {
        self.lines.push(String::new());
    }

    fn styled(&mut self, line: &str, style: Style) {
        let line = self.paint(&cut(line, self.layout.width), style);
        self.lines.push(line);
    }

    fn paint(&self, text: &str, style: Style) -> String {
        if self.layout.colour && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}
