//! Dashboards for Grafana, generated into otel-config/grafana/. A panel is a few lines of data; [`json`] has the format, and
//! [`promql`] the parts that queries share.

mod energy;
mod host_or_network;
mod json;
mod network_cpu;
pub mod promql;
mod sidecar;
mod workload;

/// The columns of Grafana's grid.
const COLUMNS: u32 = 24;

/// A dashboard.
pub struct Dashboard {
    /// The name of its file, and its identity in URLs.
    pub name: &'static str,
    /// The title.
    pub title: &'static str,
    /// One sentence about its question.
    pub description: &'static str,
    /// The rows of panels.
    pub rows: &'static [Row],
}

/// A row of panels with a title.
pub struct Row {
    title: &'static str,
    panels: &'static [Panel],
}

/// A panel.
pub struct Panel {
    title: &'static str,
    /// A sentence about the figure and how to read it.
    description: &'static str,
    /// The page and heading that explain the figure, below docs/.
    see: &'static str,
    kind: Kind,
    /// The unit in Grafana.
    unit: &'static str,
    width: u32,
    /// The queries, each with its legend.
    queries: &'static [(&'static str, &'static str)],
}

/// The visualization of a panel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Lines over time.
    Lines,
    /// Areas over time that add up.
    Stack,
    /// An estimate with its interval: the queries are the lower end, the estimate and the upper end.
    Band,
    /// The buckets of a histogram over time, with exemplars.
    Heatmap,
    /// The current value of each series, longest bar first.
    Bars,
    /// The current labels of each series.
    Table,
    /// The newest traces of a workload in Jaeger. The queries are names of spans.
    Traces,
    /// The table at the beginning of docs/reading.md.
    Reading,
}

impl Panel {
    const fn new(
        kind: Kind,
        title: &'static str,
        unit: &'static str,
        description: &'static str,
        see: &'static str,
        queries: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { title, description, see, kind, unit, width: COLUMNS / 2, queries }
    }

    const fn wide(self, width: u32) -> Self {
        Self { width, ..self }
    }
}

/// Units in Grafana.
mod unit {
    /// The units come with the data.
    pub const OF_DATA: &str = "";
    pub const SECONDS: &str = "s";
    /// A share between 0 and 1.
    pub const SHARE: &str = "percentunit";
    pub const PACKETS: &str = "pps";
    pub const BYTES_PER_SECOND: &str = "Bps";
    pub const BYTES: &str = "bytes";
    pub const PER_SECOND: &str = "cps";
    pub const WATTS: &str = "watt";
    pub const COUNT: &str = "short";
}

/// Every dashboard; the first one is the entry.
pub const ALL: [&Dashboard; 5] = [
    &host_or_network::DASHBOARD,
    &workload::DASHBOARD,
    &network_cpu::DASHBOARD,
    &energy::DASHBOARD,
    &sidecar::DASHBOARD,
];

/// Returns each dashboard's path in the checkout and its JSON. `reading` is the text of docs/reading.md.
#[must_use]
pub fn files(reading: &str) -> Vec<(String, String)> {
    ALL.iter()
        .map(|dashboard| (format!("otel-config/grafana/{}.json", dashboard.name), json::dashboard(dashboard, reading)))
        .collect()
}
