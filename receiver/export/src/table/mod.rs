//! A table of each interval as text, for files, pipes and terminals without a movable cursor.

pub(crate) mod layout;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::{
    env,
    io::{self, ErrorKind, Write},
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anstyle::Style;
use rustix::termios;
use tokio::time::Instant;

use self::{
    layout::{INDENT, lines, wrap},
    text::{cut, width},
};
use super::{Bus, Output, Published, Statistics, Subscription, Topics, health::Health};
use crate::{
    telemetry::Snapshot,
    view::{Notice, Quantity, Recent, Section, Selection, View},
};

/// The layout of the table.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The number of characters on a line.
    pub width: usize,
    /// True to use bold and dim text.
    pub colour: bool,
}

/// The line length for standard output that is not a terminal.
const WIDTH_OF_FILES: usize = 120;
/// The least width for a readable table.
const NARROWEST: usize = 40;

/// Opens the table on standard output, and subscribes it to the bus. `cpus` is the node's number of online CPUs. Requires a tokio
/// runtime.
#[must_use]
pub fn open(bus: &Bus, cpus: Option<NonZeroUsize>, selection: &Selection) -> Output {
    let statistics = Statistics::new("table");
    let (counted, selection) = (statistics.clone(), selection.clone());
    let subscription = bus.subscribe(Topics::SHOWN, &statistics);
    Output::in_thread(statistics, move || run(subscription, cpus, &selection, &counted))
}

fn run(mut subscription: Subscription, cpus: Option<NonZeroUsize>, selection: &Selection, statistics: &Statistics) {
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
        let view = View::selected(previous.as_deref(), &current, &recent, cpus, selection);
        let table = render(&view, layout_of_stdout());
        match append(&table, &mut io::stdout()) {
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
        // A failed table is not repeated: the next one shows the next interval.
        statistics.settled(current.time);
        previous = Some(current);
    }
}

/// Writes a table and an empty line.
fn append(table: &str, writer: &mut impl Write) -> io::Result<()> {
    write!(writer, "{table}\n\n")?;
    writer.flush()
}

/// Returns the layout for standard output. A terminal has its width, and colours unless `NO_COLOR` is set to a non-empty value.
fn layout_of_stdout() -> Layout {
    if !termios::isatty(io::stdout()) {
        return Layout { width: WIDTH_OF_FILES, colour: false };
    }
    let window = termios::tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0);
    let colour = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Layout { width: window.map_or(80, |size| usize::from(size.ws_col).max(NARROWEST)), colour }
}

/// Formats a view. Lines have at most `layout.width` columns, and the last line has no line feed.
fn render(view: &View, layout: Layout) -> String {
    let mut page = Page { lines: Vec::new(), layout };
    page.head(view);
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
