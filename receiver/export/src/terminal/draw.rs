//! Draws the screen: a headline, the pages, the content, and a line for messages.

use std::{
    env,
    time::{Duration, SystemTime},
};

use ratatui::{
    Frame,
    layout::Rect,
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

use super::{
    app::{App, KEYS},
    pages::Page,
};
use crate::{
    table::{
        layout::{Density, Grid, lines, wrap},
        text::cut,
    },
    view::{
        Quantity, Section, View,
        overview::{self, Bound, Cause, Figure, Rule, Workload},
    },
};

/// The least number of lines for workloads before slow packets and notices get lines.
const WORKLOADS: usize = 14;
/// The number of slow packets on the first page, and of the lines above them.
const SLOW: usize = 3;
/// The levels of a sparkline.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The styles of the screen. Without colours, text is bold, dim or reversed only.
#[derive(Clone, Copy)]
pub(super) struct Styles {
    is_coloured: bool,
}

impl Styles {
    /// Returns styles with colours, unless `NO_COLOR` is set to a non-empty value (no-color.org).
    pub(super) fn of_environment() -> Self {
        Self { is_coloured: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    #[cfg(test)]
    pub(super) const fn plain() -> Self {
        Self { is_coloured: false }
    }

    const fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    const fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    const fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Returns the style of a value above a threshold.
    const fn marked(self) -> Style {
        let bold = self.title();
        if self.is_coloured { bold.fg(Color::Yellow) } else { bold }
    }
}

/// Draws the screen, and limits the selection and the scroll position to the lines that exist.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App, styles: Styles) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let log = app.log.as_ref().map(|(_, line)| Line::raw(cut(line, width).into_owned()));
    // A headline, the pages and the last line.
    let room = height.saturating_sub(3 + usize::from(log.is_some()));
    let content = content(app, styles, width, room);
    let top = [headline(app, styles, width), pages(app, styles)];
    for (row, line) in top.into_iter().chain(content).take(height.saturating_sub(1)).enumerate() {
        put(frame, area, row, &line);
    }
    if let Some(log) = log.filter(|_| height > 3) {
        put(frame, area, height - 2, &log);
    }
    if height > 0 {
        put(frame, area, height - 1, &footer(app, styles, width));
    }
}

fn put(frame: &mut Frame<'_>, area: Rect, row: usize, line: &Line<'_>) {
    let y = area.y + u16::try_from(row).unwrap_or(u16::MAX);
    frame.buffer_mut().set_line(area.x, y, line, area.width);
}

/// Returns the lines between the pages and the last line.
fn content(app: &mut App, styles: Styles, width: usize, room: usize) -> Vec<Line<'static>> {
    if app.is_help {
        return help(styles);
    }
    let Some(view) = app.view() else {
        return vec![Line::raw("Attaching the programs and waiting for the first interval ...")];
    };
    let all = match app.page {
        Page::Workloads if app.is_detail => detail(app, styles, width),
        Page::Workloads => return first_page(app, styles, width, room),
        page => {
            let mut lines: Vec<_> =
                page.sections(view).into_iter().flat_map(|section| of_section(section, styles, width)).collect();
            if page == Page::Sidecar {
                lines.extend(notices(view, styles, width));
            }
            if lines.is_empty() { vec![Line::raw(page.empty())] } else { lines }
        }
    };
    app.scroll = app.scroll.min(all.len().saturating_sub(room));
    all.into_iter().skip(app.scroll).take(room).collect()
}

fn headline(app: &App, styles: Styles, width: usize) -> Line<'static> {
    let mut text = format!("undercurrent {}", env!("CARGO_PKG_VERSION"));
    if let Some(view) = app.view() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(view.time.0);
        let host = view.host.as_ref().map_or_else(String::new, |host| format!("  {host}"));
        let span = view
            .seconds
            .map_or_else(|| "since the start".to_owned(), |seconds| format!("over {}", Quantity::seconds(seconds)));
        text.push_str(&format!("{host}  {}  {span}", humantime::format_rfc3339_seconds(time)));
    }
    let state = match app.back() {
        _ if app.is_ending => "  ending".to_owned(),
        Some(seconds) if seconds > 0.0 => format!("  paused, {} ago", Quantity::seconds(seconds)),
        Some(_) => "  paused".to_owned(),
        None => String::new(),
    };
    let text = cut(&text, width.saturating_sub(state.chars().count())).into_owned();
    Line::from(vec![Span::styled(text, styles.dim()), Span::styled(state, styles.marked())])
}

fn pages(app: &App, styles: Styles) -> Line<'static> {
    let page = |(number, page): (usize, Page)| {
        let style = if page == app.page { styles.selected() } else { styles.dim() };
        [Span::styled(format!("{} {}", number + 1, page.title()), style), Span::raw("  ")]
    };
    Line::from_iter(Page::ALL.into_iter().enumerate().flat_map(page))
}

/// Returns the last line: the filter while it is typed, else the keys.
fn footer(app: &App, styles: Styles, width: usize) -> Line<'static> {
    if app.is_typing {
        return Line::from(vec![Span::styled("filter: ", styles.title()), Span::raw(format!("{}█", app.filter))]);
    }
    let sort = format!("s sort: {}", app.sort.heading());
    let filter =
        if app.filter.is_empty() { "/ filter".to_owned() } else { format!("/ filter: {} (Esc: all)", app.filter) };
    let keys = format!("? help  q quit  {sort}  {filter}  p pause");
    Line::styled(cut(&keys, width).into_owned(), styles.dim())
}

fn help(styles: Styles) -> Vec<Line<'static>> {
    let line = |(keys, effect): (&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!("  {keys:<23}"), styles.title()), Span::raw(effect)])
    };
    KEYS.into_iter().map(line).collect()
}

/// Returns the first page: workloads, which scroll with the selection, then slow packets and notices.
fn first_page(app: &mut App, styles: Styles, width: usize, room: usize) -> Vec<Line<'static>> {
    let workloads = app.workloads();
    app.selected = app.selected.min(workloads.len().saturating_sub(1));
    let Some(view) = app.view() else { return Vec::new() };
    let spare = room.saturating_sub(WORKLOADS.min(workloads.len() + 1));
    let mut notices = notices(view, styles, width);
    notices.truncate(spare);
    let mut below = slow_packets(view, styles, width);
    below.truncate(spare - notices.len());
    // A title without rows says nothing.
    below.truncate(if below.len() > SLOW { below.len() } else { 0 });
    below.extend(notices);
    let lines = workload_lines(&workloads, app.selected, styles, width);
    let room = room - below.len();
    let first = (app.selected + 2).saturating_sub(room);
    let mut page = lines.first().cloned().into_iter().collect::<Vec<_>>();
    if workloads.is_empty() {
        page = vec![Line::raw(Page::Workloads.empty())];
    }
    page.extend(lines.into_iter().skip(1 + first).take(room.saturating_sub(1)));
    page.extend(below);
    page
}

/// Returns the heading, and a line for each workload.
fn workload_lines(workloads: &[Workload], selected: usize, styles: Styles, width: usize) -> Vec<Line<'static>> {
    let section = overview::section(workloads);
    let grid = Grid::new(&section.columns, &section.rows, width, Density::DENSE);
    let heading = grid.heading().into_iter().map(|(_, text)| Span::styled(text, styles.dim()));
    let row = |(position, cells): (usize, Vec<(usize, String)>)| {
        let workload = &workloads[position];
        let marked = marked(workload);
        let span = |(column, text): (usize, String)| {
            let heading = section.columns[column].heading.as_str();
            let is_marked = marked.iter().any(|figure| figure.heading() == heading)
                || (heading == overview::CAUSE && workload.cause != Cause::None);
            if is_marked { Span::styled(text, styles.marked()) } else { Span::raw(text) }
        };
        let line = Line::from_iter(cells.into_iter().map(span));
        if position == selected { line.style(styles.selected()) } else { line }
    };
    std::iter::once(Line::from_iter(heading)).chain(grid.rows().enumerate().map(row)).collect()
}

/// Returns the figures above the thresholds of the rule that names the cause.
fn marked(workload: &Workload) -> Vec<Figure> {
    let conditions = Rule::of(&workload.figures).map_or(&[][..], |rule| rule.conditions);
    let above = conditions.iter().filter(|condition| matches!(condition.bound, Bound::AtLeast(_)));
    above.map(|condition| condition.figure).collect()
}

fn slow_packets(view: &View, styles: Styles, width: usize) -> Vec<Line<'static>> {
    let section = view.sections.iter().find(|section| section.title == "slow packets");
    let short =
        section.map(|section| Section { rows: section.rows.iter().take(SLOW).cloned().collect(), ..section.clone() });
    short.iter().flat_map(|section| of_section(section, styles, width)).collect()
}

/// Returns an empty line, the title, the heading and the rows of a section.
fn of_section(section: &Section, styles: Styles, width: usize) -> Vec<Line<'static>> {
    let room = width.saturating_sub(section.title.chars().count() + 2);
    let description = if room > 8 { cut(section.description, room).into_owned() } else { String::new() };
    let title = Line::from(vec![
        Span::styled(section.title.clone(), styles.title()),
        Span::styled(format!("  {description}"), styles.dim()),
    ]);
    let mut all = vec![Line::default(), title];
    let mut texts = lines(&section.columns, &section.rows, width).into_iter();
    all.extend(texts.next().map(|heading| Line::styled(heading, styles.dim())));
    all.extend(texts.map(Line::raw));
    all.extend(section.rest.as_ref().map(|rest| Line::raw(format!("  {rest}"))));
    all
}

fn notices(view: &View, styles: Styles, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for notice in &view.notices {
        let remarks: Vec<String> = notice.remarks.iter().map(ToString::to_string).collect();
        lines.extend(wrap(&format!("{}:", notice.title), &remarks, width));
    }
    let gap = (!lines.is_empty()).then(Line::default);
    gap.into_iter().chain(lines.into_iter().map(|line| Line::styled(line, styles.marked()))).collect()
}

/// Returns the page of the selected workload: its figures, the cause with its evidence, and its rows of all sections.
fn detail(app: &App, styles: Styles, width: usize) -> Vec<Line<'static>> {
    let workloads = app.workloads();
    let (Some(workload), Some(view)) = (workloads.get(app.selected.min(workloads.len().saturating_sub(1))), app.view())
    else {
        return vec![Line::raw(Page::Workloads.empty())];
    };
    let mut lines = vec![Line::styled(workload.name.clone(), styles.title())];
    lines.push(Line::from(vec![Span::raw("likely cause: "), Span::styled(workload.cause.as_str(), styles.marked())]));
    lines.extend(workload.explanation().into_iter().map(|line| Line::raw(format!("  {line}"))));
    for figure in Figure::ALL {
        let Some(value) = workload.figures.get(figure) else { continue };
        let history = app.history(&workload.name, |workload| workload.figures.get(figure).unwrap_or(0.0));
        let text = format!("{:<46} {:>8}  ", figure.name(), figure.quantity(value).to_string());
        let past = sparkline(&history, width.saturating_sub(text.chars().count()));
        lines.push(Line::from(vec![Span::raw(text), Span::styled(past, styles.dim())]));
    }
    let sections =
        view.sections.iter().chain(&view.slow_packets).filter_map(|section| section.of_workload(&workload.name));
    lines.extend(sections.flat_map(|section| of_section(&section, styles, width)));
    lines
}

/// Returns the last values as bars between zero and the highest value.
fn sparkline(values: &[f64], width: usize) -> String {
    let shown = &values[values.len().saturating_sub(width)..];
    let highest = shown.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| match highest > 0.0 {
        true => LEVELS[((value / highest * 7.0).round() as usize).min(7)],
        false => LEVELS[0],
    };
    shown.iter().map(bar).collect()
}
