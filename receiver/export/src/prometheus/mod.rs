//! Keeps the newest snapshot for programs that read it: in the formats of Prometheus, and as OTLP/JSON.
//!
//! Names, units and labels are those that Prometheus' OTLP receiver makes with otel-config/prometheus.yml. Snapshots never wait for a
//! reader.

mod accept;
mod families;
mod kept;
mod names;
mod protobuf;
#[cfg(test)]
mod tests;
mod text;

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prost::bytes::Bytes;

use self::kept::{Kept, Shown};
pub use self::{
    accept::negotiate,
    names::{PROMOTED, label, metric},
};
use crate::{
    Bus, Output, Published, Statistics, Topics,
    telemetry::{Exemplar, ExponentialHistogram, Exporters},
    view::Recent,
};

/// The series with the attributes of each resource.
const TARGET_INFO: &str = "target_info";
const TARGET_HELP: &str = "The attributes of the node and of each workload.";

/// The encoding of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' protobuf messages, with native histograms and exemplars.
    Protobuf,
    /// OpenMetrics 1.0, with exemplars. Histograms have powers of two as bounds.
    OpenMetrics,
    /// Prometheus' text format 0.0.4. Histograms have powers of two as bounds.
    Text,
    /// OTLP/JSON: one request for metrics.
    Json,
    /// The changes since the snapshot before, in JSON, for the page in a browser.
    View,
}

impl Format {
    /// All formats, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Protobuf, Self::OpenMetrics, Self::Text, Self::Json, Self::View];

    /// Returns the media type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::Json | Self::View => "application/json",
        }
    }
}

/// The newest snapshot. Clones share it.
#[derive(Clone)]
pub struct Newest {
    kept: Arc<Mutex<Option<Arc<Kept>>>>,
    statistics: Statistics,
}

/// Subscribes to the bus, and keeps the newest snapshot. `cpus` is the node's number of online CPUs. Requires a tokio runtime.
#[must_use]
pub fn open(bus: &Bus, cpus: Option<NonZeroUsize>) -> (Output, Newest) {
    let statistics = Statistics::of_readers(Exporters::LISTEN);
    let newest = Newest { kept: Arc::default(), statistics: statistics.clone() };
    let mut subscription = bus.subscribe(Topics::SHOWN, &statistics);
    let keeping = newest.clone();
    let output = Output::in_task(statistics, async move {
        let mut recent = Recent::default();
        while let Some(published) = subscription.next().await {
            let snapshot = match published {
                Published::Spans(batch) => {
                    recent.add(&batch);
                    continue;
                }
                Published::Snapshot(snapshot) => snapshot,
            };
            let time = snapshot.time;
            let before = keeping.lock().clone();
            let kept = Kept::new(snapshot, before.as_deref(), Shown { recent: recent.clone(), cpus });
            *keeping.lock() = Some(Arc::new(kept));
            // The snapshot is in memory, so workloads may end before a reader comes.
            keeping.statistics.settled(time);
        }
    });
    (output, newest)
}

impl Newest {
    /// Returns the newest snapshot in a format with the number of its points; `None` before the first one.
    #[must_use]
    pub fn encoded(&self, format: Format) -> Option<(Bytes, u64)> {
        let kept = self.lock().clone()?;
        Some((kept.encoded(format), kept.points()))
    }

    /// Counts a request: the points that a reader received, or the reason why it received none.
    pub fn count(&self, outcome: Result<u64, &'static str>, duration: Duration) {
        let (points, reason) = outcome.map_or_else(|reason| (0, Some(reason)), |points| (points, None));
        self.statistics.points(reason, points);
        self.statistics.exported(reason, duration);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Kept>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A bucket of a histogram with powers of two as bounds.
struct Bounded<'a> {
    /// The upper bound in the unit of the metric.
    bound: f64,
    /// The number of measurements above the bound before.
    count: u64,
    /// The newest exemplar.
    exemplar: Option<&'a Exemplar>,
}

/// Returns the buckets of a histogram, the last one up to infinity.
fn bounded<'a>(
    histogram: &ExponentialHistogram,
    exemplars: &'a [Exemplar],
) -> impl Iterator<Item = Bounded<'a>> + use<'a> {
    let bounds = ExponentialHistogram::powers_of_two().chain([f64::INFINITY]);
    let mut above = f64::NEG_INFINITY;
    bounds.zip(histogram.by_powers_of_two()).map(move |(bound, count)| {
        let is_inside = |exemplar: &&Exemplar| exemplar.value > above && exemplar.value <= bound;
        let exemplar = exemplars.iter().rev().find(is_inside);
        above = bound;
        Bounded { bound, count, exemplar }
    })
}
