//! A graph in the language of Graphviz.

use std::{collections::BTreeSet, fmt::Write as _};

use super::Graph;

/// Returns the graph, with the edges of the critical path in red.
pub fn draw(graph: &Graph, critical: &BTreeSet<usize>) -> String {
    let mut text = "digraph services {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
    for (index, edge) in graph.edges.iter().enumerate() {
        let label = edge.lines().join("\\n");
        let red = if critical.contains(&index) { ", color=red, penwidth=2" } else { "" };
        let _ = writeln!(text, "  {} -> {} [label=\"{label}\"{red}];", quoted(&edge.client), quoted(&edge.server));
    }
    text.push_str("}\n");
    text
}

/// Returns a quoted name. A backslash before other characters than a quote is an escape sequence of labels.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}
