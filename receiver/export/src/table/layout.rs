//! Fits columns into a width.

use super::text::{cut, shorten, width as width_of};
use crate::view::{Column, ColumnKind, Row};

pub(crate) const INDENT: usize = 2;
/// The least width of a name before lines are cut.
const NARROWEST: usize = 10;

/// The least widths of a grid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Density {
    /// The space before the first column.
    pub(crate) indent: usize,
    /// The least width of a column of numbers.
    pub(crate) number: usize,
    /// The least width of a name before another column is dropped for it.
    pub(crate) name: usize,
}

impl Density {
    /// Numbers of common length keep their position from one draw to the next.
    pub(crate) const WIDE: Self = Self { indent: INDENT, number: 7, name: 20 };
    /// As many columns as possible.
    pub(crate) const DENSE: Self = Self { indent: 0, number: 5, name: 12 };
}

/// A heading and rows in columns of at most `width`.
pub(crate) struct Grid {
    fit: Fit,
    is_number: Vec<bool>,
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
    indent: usize,
    width: usize,
}

impl Grid {
    /// Fits columns into a width. If space is short, it narrows gaps, shortens names, drops spare columns, shortens names further, and
    /// finally cuts lines. A name never takes more than a third of the line.
    pub(crate) fn new(columns: &[Column], rows: &[Row], width: usize, density: Density) -> Self {
        let rows: Vec<Vec<String>> = rows.iter().map(texts).collect();
        let least = |column: &Column| if column.kind == ColumnKind::Number { density.number } else { 0 };
        let most = |column: &Column| if shortens(column) { density.name.max(width / 3) } else { usize::MAX };
        let widths: Vec<usize> = columns
            .iter()
            .enumerate()
            .map(|(n, column)| {
                let cells = rows.iter().filter_map(|row| row.get(n)).map(|cell| width_of(cell));
                cells.max().unwrap_or(0).min(most(column)).max(width_of(&column.heading)).max(least(column))
            })
            .collect();
        Self {
            fit: fit(columns, widths, width, density),
            is_number: columns.iter().map(|column| column.kind == ColumnKind::Number).collect(),
            headings: columns.iter().map(|column| column.heading.clone()).collect(),
            rows,
            indent: density.indent,
            width,
        }
    }

    /// Returns the cells of the heading, each with the index of its column and the spaces before and after it.
    pub(crate) fn heading(&self) -> Vec<(usize, String)> {
        self.cells(&self.headings)
    }

    /// Returns the cells of each row, like [`Self::heading`].
    pub(crate) fn rows(&self) -> impl Iterator<Item = Vec<(usize, String)>> {
        self.rows.iter().map(|row| self.cells(row))
    }

    fn cells(&self, texts: &[String]) -> Vec<(usize, String)> {
        let Fit { kept, widths, gap } = &self.fit;
        let cell = |(place, n): (usize, &usize)| {
            let text = shorten(texts.get(*n).map_or("", String::as_str), widths[*n]);
            let padding = " ".repeat(widths[*n] - width_of(&text));
            let before = " ".repeat(if place == 0 { self.indent } else { *gap });
            let padded = if self.is_number[*n] {
                format!("{before}{padding}{text}")
            } else {
                format!("{before}{text}{padding}")
            };
            (*n, padded)
        };
        kept.iter().enumerate().map(cell).collect()
    }

    fn line(&self, cells: &[(usize, String)]) -> String {
        let line: String = cells.iter().map(|(_, text)| text.as_str()).collect();
        cut(line.trim_end(), self.width).into_owned()
    }
}

/// Formats the heading and the rows as lines of at most `width` columns.
pub(crate) fn lines(columns: &[Column], rows: &[Row], width: usize) -> Vec<String> {
    let grid = Grid::new(columns, rows, width, Density::WIDE);
    std::iter::once(grid.heading()).chain(grid.rows()).map(|cells| grid.line(&cells)).collect()
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

fn fit(columns: &[Column], mut widths: Vec<usize>, width: usize, density: Density) -> Fit {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    loop {
        let taken = |gap: usize| {
            let cells: usize = kept.iter().map(|n| widths[*n]).sum();
            density.indent + cells + gap * kept.len().saturating_sub(1)
        };
        if let Some(gap) = [3, 2, 1].into_iter().find(|gap| taken(*gap) <= width) {
            return Fit { kept, widths, gap };
        }
        let excess = taken(1) - width;
        let spare = kept.iter().copied().filter(|n| columns[*n].spare > 0).max_by_key(|n| columns[*n].spare);
        let least = if spare.is_some() { density.name } else { NARROWEST };
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
pub(crate) fn wrap(first: &str, items: &[String], width: usize) -> Vec<String> {
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
