//! The state of the screen, and the effect of keys on it.

use std::collections::VecDeque;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::pages::Page;
use crate::view::{
    Selection, View,
    overview::{Sort, Workload},
};

/// The number of views that are kept to go back in time.
const KEPT: usize = 120;
/// Lines of a page that a key scrolls.
const SCREENFUL: usize = 10;

/// The keys for the help.
pub(super) const KEYS: [(&str, &str); 13] = [
    ("1 to 6, Tab", "show a page, or the next one"),
    ("s, S", "sort by the next column, or the previous one"),
    ("/", "filter workloads by a part of their name; Esc: all"),
    ("arrows up, down; j, k", "select a workload, or scroll"),
    ("PageUp, PageDown", "the same by ten lines"),
    ("Home, End; g, G", "the first line, the last one"),
    ("Enter", "show the selected workload with evidence; again: all"),
    ("p, space", "pause; again: continue"),
    ("arrows left, right", "go back in time, and forward"),
    ("?", "help; any key ends it"),
    ("q, Ctrl-C", "end the sidecar"),
    ("", ""),
    ("the first page", "wait, read and resp are p99; rtt is p50; net is CPU"),
];

/// The state of the screen.
#[derive(Default)]
pub(super) struct App {
    pub(super) page: Page,
    pub(super) sort: Sort,
    /// Only workloads with this text in their name are displayed.
    pub(super) filter: String,
    /// True while the keys are part of the filter.
    pub(super) is_typing: bool,
    pub(super) is_help: bool,
    /// True if one workload is displayed with its evidence.
    pub(super) is_detail: bool,
    /// True once the sidecar ends.
    pub(super) is_ending: bool,
    /// The first displayed line of a page.
    pub(super) scroll: usize,
    /// The line of the selected workload.
    pub(super) selected: usize,
    /// The last line of the log and its number, until a key is pressed.
    pub(super) log: Option<(u64, String)>,
    /// The number of the last line of the log when a key was pressed.
    read: u64,
    /// The views, the newest first.
    views: VecDeque<View>,
    /// The position of the displayed view while the screen is paused.
    pub(super) paused: Option<usize>,
}

/// An effect of a key outside of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The screen must be drawn again.
    Draw,
    /// The sidecar must end.
    End,
}

impl App {
    /// Returns a screen that shows the selected workloads in the selected order, if the first page has the column.
    pub(super) fn new(selection: &Selection) -> Self {
        let sort = Sort::all().find(|sort| selection.sort.as_deref() == Some(sort.heading())).unwrap_or_default();
        Self { sort, filter: selection.workload.clone().unwrap_or_default(), ..Self::default() }
    }

    /// Adds the newest view. A paused screen keeps the displayed one, as long as it is kept.
    pub(super) fn add(&mut self, view: View) {
        self.views.push_front(view);
        self.views.truncate(KEPT);
        self.paused = self.paused.map(|position| (position + 1).min(self.views.len() - 1));
    }

    /// Returns the displayed view; `None` before the first one.
    pub(super) fn view(&self) -> Option<&View> {
        self.views.get(self.paused.unwrap_or(0))
    }

    /// Returns the seconds between the displayed view and the newest one; `None` if the screen is not paused.
    pub(super) fn back(&self) -> Option<f64> {
        let (position, newest) = (self.paused?, self.views.front()?);
        self.views.get(position).map(|view| newest.time.0.saturating_sub(view.time.0) as f64 / 1e9)
    }

    /// Returns the displayed workloads in their order.
    pub(super) fn workloads(&self) -> Vec<Workload> {
        let all = self.view().map_or(&[][..], |view| &view.workloads);
        let filter = self.filter.to_lowercase();
        let fits = |workload: &&Workload| workload.name.to_lowercase().contains(&filter);
        let mut workloads: Vec<Workload> = all.iter().filter(fits).cloned().collect();
        self.sort.sort(&mut workloads);
        workloads
    }

    /// Returns the value of a figure of a workload in the kept views, the oldest first.
    pub(super) fn history(&self, name: &str, value: impl Fn(&Workload) -> f64) -> Vec<f64> {
        let from = self.paused.unwrap_or(0);
        let of = |view: &View| view.workloads.iter().find(|workload| workload.name == name).map_or(0.0, &value);
        self.views.iter().skip(from).map(of).rev().collect()
    }

    /// Shows a line of the log, unless a key was pressed since.
    pub(super) fn log(&mut self, line: Option<(u64, String)>) {
        self.log = line.filter(|(number, _)| *number > self.read);
    }

    /// Applies an event of the terminal.
    pub(super) fn event(&mut self, event: &Event) -> Effect {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(*key),
            _ => Effect::Draw,
        }
    }

    fn key(&mut self, key: KeyEvent) -> Effect {
        self.read = self.log.take().map_or(self.read, |(number, _)| number);
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            // The byte zero, which some programs send at the end of their input, is Ctrl-Space.
            return if key.code == KeyCode::Char('c') { self.end() } else { Effect::Draw };
        }
        if self.is_help {
            self.is_help = false;
        } else if self.is_typing {
            self.typed(key.code);
        } else if key.code == KeyCode::Char('q') {
            return self.end();
        } else {
            self.command(key.code);
        }
        Effect::Draw
    }

    fn end(&mut self) -> Effect {
        self.is_ending = true;
        Effect::End
    }

    /// Applies a key to the filter.
    fn typed(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => self.clear(),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if !c.is_control() => self.filter.push(c),
            _ => {}
        }
        self.selected = 0;
    }

    fn clear(&mut self) {
        (self.is_typing, self.is_detail, self.filter) = (false, false, String::new());
    }

    fn command(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char('?' | 'h') => self.is_help = true,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.clear(),
            KeyCode::Char(digit @ '1'..='6') => self.show(Page::ALL[digit as usize - '1' as usize]),
            KeyCode::Tab => self.show(self.page.step(1)),
            KeyCode::BackTab => self.show(self.page.step(Page::ALL.len() - 1)),
            KeyCode::Char('s') => self.sort_by(1),
            KeyCode::Char('S') => self.sort_by(Sort::all().count() - 1),
            KeyCode::Char('p' | ' ') => self.paused = if self.paused.is_some() { None } else { Some(0) },
            KeyCode::Left => self.paused = Some((self.paused.unwrap_or(0) + 1).min(self.views.len().saturating_sub(1))),
            KeyCode::Right => self.paused = Some(self.paused.unwrap_or(0).saturating_sub(1)),
            KeyCode::Enter if self.page == Page::Workloads => {
                (self.is_detail, self.scroll) = (!self.is_detail, 0);
            }
            _ => self.moved(code),
        }
    }

    /// Selects a workload or scrolls. The draw limits both to the lines that exist.
    fn moved(&mut self, code: KeyCode) {
        let selects = self.page == Page::Workloads && !self.is_detail;
        let position = if selects { &mut self.selected } else { &mut self.scroll };
        *position = match code {
            KeyCode::Up | KeyCode::Char('k') => position.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => position.saturating_add(1),
            KeyCode::PageUp => position.saturating_sub(SCREENFUL),
            KeyCode::PageDown => position.saturating_add(SCREENFUL),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => usize::MAX,
            _ => *position,
        };
    }

    fn show(&mut self, page: Page) {
        (self.page, self.scroll, self.is_detail) = (page, 0, false);
    }

    fn sort_by(&mut self, step: usize) {
        let all: Vec<Sort> = Sort::all().collect();
        let position = all.iter().position(|sort| *sort == self.sort).unwrap_or(0);
        self.sort = all[(position + step) % all.len()];
    }
}
