//! Columns that fit a width.

/// A column of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) heading: String,
    /// Whether its cells stand on the right.
    pub(super) number: bool,
    /// Which column goes first where there is not room for all: the highest. Zero stays.
    pub(super) spare: u8,
}

impl Column {
    pub(super) fn text(heading: &str) -> Self {
        Self { heading: heading.to_owned(), number: false, spare: 0 }
    }

    pub(super) fn number(heading: &str, spare: u8) -> Self {
        Self { heading: heading.to_owned(), number: true, spare }
    }
}

const INDENT: usize = 2;

/// The heading and the rows as lines of at most `width` characters. Gaps narrow first, then spare columns go, then lines
/// are cut.
pub(super) fn lines(columns: &[Column], rows: &[Vec<String>], width: usize) -> Vec<String> {
    // Figures of common length keep their place from one draw to the next.
    let least = |column: &Column| if column.number { 7 } else { 0 };
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(n, column)| {
            let cells = rows.iter().filter_map(|row| row.get(n)).map(|cell| cell.chars().count());
            cells.max().unwrap_or(0).max(column.heading.chars().count()).max(least(column))
        })
        .collect();
    let (kept, gap) = fit(columns, &widths, width);
    let headings: Vec<String> = columns.iter().map(|column| column.heading.clone()).collect();
    let line = |cells: &Vec<String>| {
        let mut line = " ".repeat(INDENT);
        for (place, n) in kept.iter().enumerate() {
            let (cell, width) = (cells.get(*n).map_or("", String::as_str), widths[*n]);
            let padded = if columns[*n].number { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            let between = if place == 0 { 0 } else { gap };
            line.extend(std::iter::repeat_n(' ', between));
            line.push_str(&padded);
        }
        cut(line.trim_end(), width)
    };
    std::iter::once(&headings).chain(rows).map(line).collect()
}

/// The columns that stay, and the gap between them.
fn fit(columns: &[Column], widths: &[usize], width: usize) -> (Vec<usize>, usize) {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    loop {
        let cells: usize = kept.iter().map(|n| widths[*n]).sum();
        let gaps = kept.len().saturating_sub(1);
        for gap in [3, 2, 1] {
            if INDENT + cells + gap * gaps <= width {
                return (kept, gap);
            }
        }
        match kept.iter().copied().max_by_key(|n| columns[*n].spare).filter(|n| columns[*n].spare > 0) {
            Some(spare) => kept.retain(|n| *n != spare),
            None => return (kept, 1),
        }
    }
}

/// At most `width` characters, with an ellipsis where something is gone.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.push('…');
    kept
}

/// Words on lines of at most `width` characters, those after the first indented.
pub(super) fn wrap(first: &str, items: &[String], width: usize) -> Vec<String> {
    let mut lines = vec![first.to_owned()];
    for (n, item) in items.iter().enumerate() {
        let item = if n + 1 < items.len() { format!("{item};") } else { item.clone() };
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + item.chars().count() <= width => {
                line.push(' ');
                line.push_str(&item);
            }
            _ => lines.push(format!("{}{item}", " ".repeat(2 * INDENT))),
        }
    }
    lines.iter().map(|line| cut(line, width)).collect()
}
