//! A graph as SVG without scripts: services in columns, by their distance from an entry point.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use super::{Edge, Graph};

/// The size of a service in pixels.
const BOX: (usize, usize) = (180, 34);
/// The distance between columns and between rows in pixels.
const STEP: (usize, usize) = (340, 76);
/// The space around the picture in pixels.
const MARGIN: usize = 16;
/// The characters of the longest name that fits.
const LETTERS: usize = 26;

/// Returns the picture, with the edges of the critical path in red.
pub fn draw(graph: &Graph, critical: &BTreeSet<usize>) -> String {
    let places = places(&graph.edges);
    let most = |of: fn(&(usize, usize)) -> usize| places.values().map(of).max().unwrap_or(0);
    let (width, height) = (most(|place| place.0) + BOX.0 + MARGIN, most(|place| place.1) + BOX.1 + MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (index, edge) in graph.edges.iter().enumerate() {
        line(&mut text, edge, &places, critical.contains(&index));
    }
    for (name, (left, top)) in &places {
        let (whole, (width, height)) = (escaped(name), BOX);
        let short = escaped(&name.chars().take(LETTERS).collect::<String>());
        let _ = writeln!(
            text,
            "<g><title>{whole}</title><rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"#eef\" stroke=\"#334\"/>\
             <text x=\"{}\" y=\"{}\">{short}</text></g>",
            left + 6,
            top + 21
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Draws the line and the figures of an edge.
fn line(text: &mut String, edge: &Edge, places: &BTreeMap<&str, (usize, usize)>, is_critical: bool) {
    let (from, to) = (places[&*edge.client], places[&*edge.server]);
    let (from, to) = ((from.0 + BOX.0, from.1 + BOX.1 / 2), (to.0, to.1 + BOX.1 / 2));
    let (colour, stroke) = if is_critical { ("#c00", 2) } else { ("#888", 1) };
    let _ = write!(
        text,
        "<g><title>{} to {}</title><line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{colour}\" stroke-width=\"{stroke}\"/>",
        escaped(&edge.client),
        escaped(&edge.server),
        from.0,
        from.1,
        to.0,
        to.1
    );
    // Nearer to the server, where the edges of one client are apart.
    let (x, y) = ((from.0 + 2 * to.0) / 3, (from.1 + 2 * to.1) / 3);
    for (row, figures) in edge.lines().iter().enumerate() {
        let _ = write!(
            text,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"{colour}\">{figures}</text>",
            y + 12 * row
        );
    }
    text.push_str("</g>\n");
}

/// Returns the upper left corner of each service.
fn places(edges: &[Edge]) -> BTreeMap<&str, (usize, usize)> {
    let mut rows: BTreeMap<usize, usize> = BTreeMap::new();
    let mut places = BTreeMap::new();
    for (name, column) in columns(edges) {
        let row = rows.entry(column).or_insert(0);
        places.insert(name, (MARGIN + STEP.0 * column, MARGIN + STEP.1 * *row));
        *row += 1;
    }
    places
}

/// Returns the distance of each service from the nearest entry point; services of cycles without one are in the first column.
fn columns(edges: &[Edge]) -> BTreeMap<&str, usize> {
    let servers: BTreeSet<&str> = edges.iter().map(|edge| &*edge.server).collect();
    let mut columns: BTreeMap<&str, usize> = BTreeMap::new();
    let mut reached: BTreeSet<&str> =
        edges.iter().map(|edge| &*edge.client).filter(|name| !servers.contains(name)).collect();
    for column in 0.. {
        if reached.is_empty() {
            break;
        }
        columns.extend(reached.iter().map(|name| (*name, column)));
        let next = edges.iter().filter(|edge| reached.contains(&*edge.client)).map(|edge| &*edge.server);
        reached = next.filter(|name| !columns.contains_key(name)).collect();
    }
    for name in edges.iter().flat_map(|edge| [&*edge.client, &*edge.server]) {
        columns.entry(name).or_insert(0);
    }
    columns
}

/// Escapes characters with a meaning in XML. Names contain no control characters.
fn escaped(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
