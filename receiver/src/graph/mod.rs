//! `undercurrent graph`: reads the calls between services from Prometheus, and draws them.

mod dot;
mod path;
mod prometheus;
mod svg;

use std::{collections::BTreeMap, time::Duration};

use clap::ValueEnum;

use self::prometheus::{Client, Sample};
pub use self::prometheus::{Endpoint, QueryError};
use crate::text;

/// Bytes of the longest name in a picture.
const LONGEST: usize = 200;

/// The format of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The language of Graphviz.
    #[default]
    Dot,
    /// A picture.
    Svg,
}

/// The percentile that selects the critical path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Percentile {
    /// The median.
    P50,
    /// The 99th percentile.
    #[default]
    P99,
}

/// The calls of a client to a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edge {
    /// The name of the client.
    pub client: String,
    /// The name of the server.
    pub server: String,
    /// Calls per second.
    pub calls: f64,
    /// Failed calls per second.
    pub failed: f64,
    /// The median in seconds; `None` if it is not known.
    pub p50: Option<f64>,
    /// The 99th percentile in seconds; `None` if it is not known.
    pub p99: Option<f64>,
}

impl Edge {
    fn percentile(&self, of: Percentile) -> Option<f64> {
        match of {
            Percentile::P50 => self.p50,
            Percentile::P99 => self.p99,
        }
    }

    /// Returns the lines that describe the calls.
    fn lines(&self) -> Vec<String> {
        let calls = match self.failed {
            0.0 => format!("{:.1}/s", self.calls),
            failed => format!("{:.1}/s, {failed:.1}/s failed", self.calls),
        };
        let time = |name: &str, seconds: f64| format!("{name} {}", milliseconds(seconds));
        let times = [self.p50.map(|time_of| time("p50", time_of)), self.p99.map(|time_of| time("p99", time_of))];
        [calls].into_iter().chain(times.into_iter().flatten()).collect()
    }
}

fn milliseconds(seconds: f64) -> String {
    match seconds * 1e3 {
        long if long >= 100.0 => format!("{long:.0} ms"),
        short if short >= 0.1 => format!("{short:.1} ms"),
        shorter => format!("{shorter:.3} ms"),
    }
}

/// The calls between services in a period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// The edges, by client and server.
    pub edges: Vec<Edge>,
}

impl Graph {
    /// Reads the calls of the last `window` from Prometheus.
    ///
    /// # Errors
    /// If Prometheus cannot be asked, or its reply is no result of a query.
    pub async fn read(endpoint: &Endpoint, window: Duration) -> Result<Self, QueryError> {
        let client = Client::new(endpoint);
        let mut edges = BTreeMap::new();
        for query in QUERIES {
            let samples = client.query(&query.text(window)).await?;
            add(&mut edges, &samples, query.set);
        }
        Ok(Self { edges: edges.into_values().filter(|edge: &Edge| edge.calls > 0.0).collect() })
    }

    /// Returns a picture, with the critical path in red.
    #[must_use]
    pub fn draw(&self, format: Format, percentile: Percentile) -> String {
        let critical = path::critical(&self.edges, percentile);
        match format {
            Format::Dot => dot::draw(self, &critical),
            Format::Svg => svg::draw(self, &critical),
        }
    }
}

/// A query, and the field of an edge with its results.
struct Query {
    expression: &'static str,
    set: fn(&mut Edge, f64),
}

impl Query {
    fn text(&self, window: Duration) -> String {
        self.expression.replace("WINDOW", &format!("{}s", window.as_secs().max(1)))
    }
}

/// The queries. Calls without a view of the server have the time of the client.
const QUERIES: [Query; 6] = [
    Query {
        expression: "sum by (client, server) (rate(traces_service_graph_request_total[WINDOW]))",
        set: |edge, value| edge.calls = value,
    },
    Query {
        expression: "sum by (client, server) (rate(traces_service_graph_request_failed_total[WINDOW]))",
        set: |edge, value| edge.failed = value,
    },
    Query {
        expression: "histogram_quantile(0.5, sum by (client, server, le) (rate(traces_service_graph_request_client_seconds_bucket[WINDOW])))",
        set: |edge, value| edge.p50 = Some(value),
    },
    Query {
        expression: "histogram_quantile(0.99, sum by (client, server, le) (rate(traces_service_graph_request_client_seconds_bucket[WINDOW])))",
        set: |edge, value| edge.p99 = Some(value),
    },
    Query {
        expression: "histogram_quantile(0.5, sum by (client, server, le) (rate(traces_service_graph_request_server_seconds_bucket[WINDOW])))",
        set: |edge, value| edge.p50 = Some(value),
    },
    Query {
        expression: "histogram_quantile(0.99, sum by (client, server, le) (rate(traces_service_graph_request_server_seconds_bucket[WINDOW])))",
        set: |edge, value| edge.p99 = Some(value),
    },
];

/// Sets a field of the edges that have a sample.
fn add(edges: &mut BTreeMap<(String, String), Edge>, samples: &[Sample], set: fn(&mut Edge, f64)) {
    for sample in samples.iter().filter(|sample| sample.value.is_finite()) {
        let name = |label: &str| sample.labels.get(label).map(|name| text::shortened(name, LONGEST).into_owned());
        let (Some(client), Some(server)) = (name("client"), name("server")) else { continue };
        let edge = edges.entry((client.clone(), server.clone()));
        set(edge.or_insert_with(|| Edge { client, server, ..Edge::default() }), sample.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the edges of a chain and a fan-out.
    pub fn example() -> Graph {
        let edge = |client: &str, server: &str, calls, p99| Edge {
            client: client.to_owned(),
            server: server.to_owned(),
            calls,
            failed: if server == "cache" { 0.5 } else { 0.0 },
            p50: Some(p99 / 4.0),
            p99: Some(p99),
        };
        Graph {
            edges: vec![
                edge("front", "middle", 12.0, 0.25),
                edge("middle", "cache", 5.0, 0.000_4),
                edge("middle", "store", 7.0, 0.2),
                edge("store", "disk \"1\" <a&b>", 4.0, 0.02),
            ],
        }
    }

    #[test]
    fn pictures_have_every_edge_and_the_critical_path() {
        insta::assert_snapshot!("dot", example().draw(Format::Dot, Percentile::P99));
        insta::assert_snapshot!("svg", example().draw(Format::Svg, Percentile::P99));
    }

    #[test]
    fn an_empty_graph_is_a_picture() {
        let empty = Graph::default();
        assert!(empty.draw(Format::Dot, Percentile::P50).starts_with("digraph"));
        assert!(empty.draw(Format::Svg, Percentile::P50).ends_with("</svg>\n"));
    }

    #[test]
    fn samples_without_a_number_or_a_name_are_left_out() {
        let sample = |client: Option<&str>, value: f64| {
            let labels = client.map(|client| ("client".to_owned(), client.to_owned()));
            let server = ("server".to_owned(), "b\u{1b}[31m".to_owned());
            Sample { labels: labels.into_iter().chain([server]).collect(), value }
        };
        let mut edges = BTreeMap::new();
        add(&mut edges, &[sample(Some("a"), 1.0), sample(None, 2.0), sample(Some("c"), f64::NAN)], |edge, value| {
            edge.calls = value
        });
        let edges: Vec<Edge> = edges.into_values().collect();
        assert_eq!(edges.len(), 1);
        assert_eq!((edges[0].client.as_str(), edges[0].server.as_str(), edges[0].calls), ("a", "b\\u{1b}[31m", 1.0));
    }
}
