//! The newest snapshot, its exemplars and its encodings.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
};

use prost::bytes::Bytes;

use super::{
    Format,
    families::Families,
    protobuf,
    text::{self, Dialect},
};
use crate::{
    encoding::{JSON_REQUEST_LIMIT, json_tree},
    page, requests,
    telemetry::{Attributes, Data, Exemplar, Resource, Snapshot},
    view::{Recent, View},
};

/// Most exemplars of a series. A snapshot has those since the snapshot before, and readers come less often.
const EXEMPLARS: usize = 10;

/// A histogram of a resource.
type Series = (Arc<Resource>, &'static str, Attributes);

/// The last exemplars of each histogram, in the order of time.
#[derive(Clone, Default)]
pub(super) struct Exemplars(HashMap<Series, Vec<Exemplar>>);

impl Exemplars {
    /// Adds the exemplars of a snapshot. Drops those of series that it does not have.
    fn next(mut self, snapshot: &Snapshot) -> Self {
        let mut next = HashMap::new();
        for resource in &snapshot.resources {
            for metric in resource.metrics.iter().filter(|metric| metric.descriptor.instrument.is_histogram()) {
                for point in &metric.points {
                    let Data::Histogram(histogram) = &point.data else { continue };
                    if self.0.is_empty() && histogram.exemplars.is_empty() {
                        continue;
                    }
                    let series = (Arc::clone(&resource.resource), metric.descriptor.name, point.attributes.clone());
                    let mut exemplars = self.0.remove(&series).unwrap_or_default();
                    exemplars.extend(histogram.exemplars.iter().cloned());
                    exemplars.drain(..exemplars.len().saturating_sub(EXEMPLARS));
                    if !exemplars.is_empty() {
                        next.insert(series, exemplars);
                    }
                }
            }
        }
        Self(next)
    }

    /// Returns the exemplars of a series.
    pub(super) fn of(&self, resource: &Arc<Resource>, metric: &'static str, attributes: &Attributes) -> &[Exemplar] {
        if self.0.is_empty() {
            return &[];
        }
        self.0.get(&(Arc::clone(resource), metric, attributes.clone())).map_or(&[], Vec::as_slice)
    }
}

/// The content of a view besides snapshots.
#[derive(Default)]
pub(super) struct Shown {
    /// The most recent slow packets.
    pub(super) recent: Recent,
    /// The node's number of online CPUs.
    pub(super) cpus: Option<NonZeroUsize>,
}

/// A snapshot with its encodings. Each is made when it is first requested, so the number of requests does not change the CPU time of
/// encodings.
pub(super) struct Kept {
    snapshot: Arc<Snapshot>,
    /// The snapshot before, for the changes of the view.
    before: Option<Arc<Snapshot>>,
    exemplars: Exemplars,
    shown: Shown,
    encoded: [OnceLock<Bytes>; Format::ALL.len()],
}

impl Kept {
    /// Keeps a snapshot in the place of the one before.
    pub(super) fn new(snapshot: Arc<Snapshot>, before: Option<&Self>, shown: Shown) -> Self {
        let exemplars = before.map(|kept| kept.exemplars.clone()).unwrap_or_default().next(&snapshot);
        let before = before.map(|kept| Arc::clone(&kept.snapshot));
        Self { snapshot, before, exemplars, shown, encoded: Default::default() }
    }

    /// Returns the number of points.
    pub(super) fn points(&self) -> u64 {
        self.snapshot.points()
    }

    /// Returns the encoding in a format.
    pub(super) fn encoded(&self, format: Format) -> Bytes {
        self.encoded[format as usize].get_or_init(|| self.encode(format)).clone()
    }

    fn encode(&self, format: Format) -> Bytes {
        let families = || Families::of(&self.snapshot);
        let text = |dialect| text::encode(&families(), &self.exemplars, dialect).into();
        match format {
            Format::Protobuf => protobuf::encode(&families(), &self.exemplars).into(),
            Format::OpenMetrics => text(Dialect::OpenMetrics),
            Format::Text => text(Dialect::Text),
            Format::Json => json(&self.snapshot).into(),
            Format::View => {
                let Shown { recent, cpus } = &self.shown;
                page::json(View::new(self.before.as_deref(), &self.snapshot, recent, *cpus)).into()
            }
        }
    }
}

/// Returns a snapshot as one request in OTLP/JSON. Only a part of it is in memory as a tree.
fn json(snapshot: &Snapshot) -> Vec<u8> {
    let mut text = br#"{"resourceMetrics":["#.to_vec();
    let start = text.len();
    for resource in requests(snapshot, JSON_REQUEST_LIMIT).flat_map(|part| part.request.resource_metrics) {
        let end = text.len();
        if end > start {
            text.push(b',');
        }
        let written = json_tree(&resource).and_then(|tree| serde_json::to_writer(&mut text, &tree));
        // OTLP's messages have text keys only, so their serialization cannot fail.
        if written.is_err() {
            text.truncate(end);
        }
    }
    text.extend_from_slice(b"]}");
    text
}
