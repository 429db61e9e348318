//! Fits columns into a width.

use super::text::{cut, shorten, width as width_of};
use crate::view::{Column, ColumnKind, Row};

pub(super) const INDENT: usize = 2;
/// The least width of a name before another column is dropped for it, and before lines are cut.
const READABLE: usize = 20;
const NARROWEST: usize = 10;

/// Formats the heading and the rows as lines of at most `width` columns. If space is short, it narrows gaps,
/// shortens names, drops spare columns, shortens names further, and finally cuts lines. A name never takes more
/// than a third of the line.
pub(super) fn lines(columns: &[Column], rows: &[Row], width: usize) -> Vec<String> {
    let rows: Vec<Vec<String>> = rows.iter().map(texts).collect();
    // Numbers of common length keep their position from one draw to the next.
    let least = |column: &Column| if column.kind == ColumnKind::Number { 7 } else { 0 };
    let most = |column: &Column| if shortens(column) { READABLE.max(width / 3) } else { usize::MAX };
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(n, column)| {
            let cells = rows.iter().filter_map(|row| row.get(n)).map(|cell| width_of(cell));
            cells.max().unwrap_or(0).min(most(column)).max(width_of(&column.heading)).max(least(column))
        })
        .collect();
    let Fit { kept, widths, gap } = fit(columns, widths, width);
    let headings: Vec<String> = columns.iter().map(|column| column.heading.clone()).collect();
    let line = |cells: &Vec<String>| {
        let mut line = " ".repeat(INDENT);
        for (place, n) in kept.iter().enumerate() {
            let cell = shorten(cells.get(*n).map_or("", String::as_str), widths[*n]);
            let padding = " ".repeat(widths[*n] - width_of(&cell));
            line.push_str(&" ".repeat(if place == 0 { 0 } else { gap }));
            if columns[*n].kind == ColumnKind::Number {
                line.extend([&padding, &*cell]);
            } else {
                line.extend([&*cell, &padding]);
            }
        }
        cut(line.trim_end(), width).into_owned()
    };
    std::iter::once(&headings).chain(&rows).map(line).collect()
}

/// Returns the texts of the cells. The first one is indented by the depth of the row.
fn texts(row: &Row) -> Vec<String> {
    let indent = " ".repeat(INDENT * row.depth);
    let first = row.cells.iter().take(1).map(|cell| format!("{indent}{cell}"));
    first.chain(row.cells.iter().skip(1).map(ToString::to_string)).collect()
}

/// Returns true if the cells of a column can be shortened.
fn shortens(column: &Column) -> bool {
    column.kind == ColumnKind::Name
}

/// The columns that fit.
struct Fit {
    /// Indexes of the columns that stay.
    kept: Vec<usize>,
    /// The widths of all columns.
    widths: Vec<usize>,
    gap: usize,
}

fn fit(columns: &[Column], mut widths: Vec<usize>, width: usize) -> Fit {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    loop {
        let taken = |gap: usize| {
            let cells: usize = kept.iter().map(|n| widths[*n]).sum();
            INDENT + cells + gap * kept.len().saturating_sub(1)
        };
        if let Some(gap) = [3, 2, 1].into_iter().find(|gap| taken(*gap) <= width) {
            return Fit { kept, widths, gap };
        }
        let excess = taken(1) - width;
        let spare = kept.iter().copied().filter(|n| columns[*n].spare > 0).max_by_key(|n| columns[*n].spare);
        let least = if spare.is_some() { READABLE } else { NARROWEST };
        let name = kept.iter().copied().find(|n| shortens(&columns[*n]) && widths[*n] >= least + excess);
        match (name, spare) {
            (Some(name), _) => widths[name] -= excess,
            (None, Some(spare)) => kept.retain(|n| *n != spare),
            (None, None) => {
                for n in kept.iter().filter(|n| shortens(&columns[**n])) {
                    widths[*n] = widths[*n].min(NARROWEST);
                }
                return Fit { kept, widths, gap: 1 };
            }
        }
    }
}

/// Wraps words on lines of at most `width` characters, and indents all lines but the first.
pub(super) fn wrap(first: &str, items: &[String], width: usize) -> Vec<String> {
    let mut lines = vec![first.to_owned()];
    for (n, item) in items.iter().enumerate() {
        let item = if n + 1 < items.len() { format!("{item};") } else { item.clone() };
        match lines.last_mut() {
            Some(line) if width_of(line) + 1 + width_of(&item) <= width => {
                line.push(' ');
                line.push_str(&item);
            }
            _ => lines.push(format!("{}{item}", " ".repeat(2 * INDENT))),
        }
    }
    lines.iter().map(|line| cut(line, width).into_owned()).collect()
}
