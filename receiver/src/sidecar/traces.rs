//! Publishes spans, and attaches exemplars after the export of their spans.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    io,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use crate::{
    export::Bus,
    kernel::ring::Watch,
    signals::Traced,
    telemetry::{Attributes, Descriptor, Exemplar, Readings, Resource, ResourceSpans, SpanBatch},
    workloads::Slot,
};

/// Time for which a batch collects spans: packets of one stall are read shortly after each other.
const PERIOD: Duration = Duration::from_millis(250);
/// Most batches that wait for their export.
const BATCHES: usize = 256;
/// Most time series with a recorded time of their last exemplar.
const SERIES: usize = 4096;

/// A histogram of a workload.
type Series = (Slot, &'static str, Attributes);

/// An exemplar and its histogram.
struct Attached {
    slot: Slot,
    metric: &'static Descriptor,
    attributes: Attributes,
    exemplar: Exemplar,
}

struct Exported {
    batch: Arc<SpanBatch>,
    /// Number of outputs that must accept the batch.
    outputs: usize,
    exemplars: Vec<Attached>,
}

/// The spans on their way to the outputs.
pub struct Traces {
    /// The handles that wait for spans, one for each signal with spans.
    watches: Vec<Watch>,
    /// The end of the batch that collects spans.
    end: Option<Instant>,
    exported: VecDeque<Exported>,
    /// The time of the last exemplar of each histogram, in milliseconds.
    last: HashMap<Series, u64>,
}

impl Traces {
    /// Creates the way of spans. Without a signal that has spans, it never becomes due.
    pub fn new(watches: Vec<Watch>) -> Self {
        Self { watches, end: None, exported: VecDeque::new(), last: HashMap::new() }
    }

    /// Waits until spans must be published. Cancel safe.
    pub async fn due(&mut self) {
        let end = match self.end {
            Some(end) => end,
            None if filled(&self.watches).await.is_ok() => Instant::now() + PERIOD,
            // The runtime ends.
            None => return std::future::pending().await,
        };
        self.end = Some(end);
        sleep_until(end).await;
        self.end = None;
    }

    /// Publishes spans on the bus. `resource` returns the resource of a slot; spans without one are dropped.
    pub fn publish(&mut self, traced: Vec<Traced>, bus: &Bus, resource: impl Fn(Slot) -> Option<Arc<Resource>>) {
        let (mut resources, mut exemplars): (Vec<(Slot, ResourceSpans)>, Vec<Attached>) = Default::default();
        for Traced { slot, spans, metric, attributes, exemplar } in traced {
            match resources.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, known)) => known.spans.extend(spans),
                None => {
                    let Some(resource) = resource(slot) else { continue };
                    resources.push((slot, ResourceSpans { resource, spans }));
                }
            }
            exemplars.push(Attached { slot, metric, attributes, exemplar });
        }
        if resources.is_empty() {
            return;
        }
        let batch = Arc::new(SpanBatch::new(resources.into_iter().map(|(_, spans)| spans).collect()));
        let outputs = bus.publish_spans(&batch);
        if self.exported.len() == BATCHES {
            self.exported.pop_front();
        }
        self.exported.push_back(Exported { batch, outputs, exemplars });
    }

    /// Attaches the exemplars of accepted spans to their histograms, in the order of time. Prometheus drops an exemplar unless it is newer
    /// than the one before, in milliseconds.
    pub fn attach(&mut self, readings: &mut Readings) {
        let mut accepted = Vec::new();
        self.exported.retain_mut(|exported| {
            let is_accepted = exported.outputs > 0 && exported.batch.accepted() >= exported.outputs;
            if is_accepted {
                accepted.append(&mut exported.exemplars);
            }
            !is_accepted
        });
        accepted.sort_by_key(|attached| attached.exemplar.time);
        for Attached { slot, metric, attributes, exemplar } in accepted {
            let milliseconds = exemplar.time.0 / 1_000_000;
            let series = (slot, metric.name, attributes);
            if self.last.get(&series).is_some_and(|last| *last >= milliseconds) {
                continue;
            }
            if let Some(histogram) = readings.histogram(slot, metric, &series.2) {
                histogram.exemplars.push(exemplar);
                if self.last.len() >= SERIES {
                    self.last.clear();
                }
                self.last.insert(series, milliseconds);
            }
        }
    }
}

/// Waits until a signal has spans; never completes without a signal that has spans. Cancel safe.
///
/// # Errors
/// If the runtime ends.
async fn filled(watches: &[Watch]) -> io::Result<()> {
    let mut waiting: Vec<_> = watches.iter().map(|watch| Box::pin(watch.filled())).collect();
    poll_fn(|context| {
        let ready = waiting.iter_mut().find_map(|filled| match filled.as_mut().poll(context) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        export::Bus,
        signals::latency,
        telemetry::{
            Data, ExponentialHistogram, Metric, Point, Scale, SpanContext, UnixNanos, finished_span, new_context,
        },
    };

    static METRIC: &Descriptor = &latency::DURATION;

    fn traced(milliseconds: u64) -> Traced {
        let context = new_context(&SpanContext::NONE);
        let time = UnixNanos(milliseconds * 1_000_000);
        let attributes = Attributes::new().with("undercurrent.network.layer", "socket_read");
        let times = [UnixNanos(0), time];
        let span = finished_span(context.clone(), &SpanContext::NONE, "network receive", times, &Attributes::new());
        let exemplar = Exemplar { context, value: 0.5, time, attributes: Attributes::new() };
        Traced { slot: Slot::NODE, spans: vec![span], metric: METRIC, attributes, exemplar }
    }

    fn readings() -> Readings {
        let histogram = ExponentialHistogram::from_duration(Scale::DEFAULT, Duration::from_millis(500));
        let attributes = Attributes::new().with("undercurrent.network.layer", "socket_read");
        let point = Point { attributes, start: UnixNanos(0), data: Data::Histogram(histogram) };
        let mut readings = Readings::default();
        readings.add(Slot::NODE, Metric { descriptor: METRIC, points: vec![point] });
        readings
    }

    /// Returns the times of the exemplars that a tick attaches, in milliseconds.
    fn times(traces: &mut Traces) -> Vec<u64> {
        let mut readings = readings();
        traces.attach(&mut readings);
        let Some(Data::Histogram(histogram)) = readings.points(METRIC).next().map(|point| point.data.clone()) else {
            panic!("no histogram")
        };
        histogram.exemplars.iter().map(|exemplar| exemplar.time.0 / 1_000_000).collect()
    }

    #[test]
    fn exemplars_follow_the_acceptance_of_their_spans_in_order() {
        let mut traces = Traces::new(Vec::new());
        let bus = Bus::default();
        let resource = |_| Some(Arc::new(Resource { attributes: Attributes::new() }));
        traces.publish(vec![traced(7), traced(5), traced(5)], &bus, resource);
        traces.publish(vec![traced(6)], &bus, resource);
        traces.exported.iter_mut().for_each(|exported| exported.outputs = 1);
        assert_eq!(times(&mut traces), [0_u64; 0], "no output has accepted the spans");
        traces.exported[0].batch.accept();
        assert_eq!(times(&mut traces), [5, 7]);
        assert_eq!(times(&mut traces), [0_u64; 0], "an exemplar is attached once");
        // This exemplar is older than one that was exported.
        traces.exported[0].batch.accept();
        assert_eq!(times(&mut traces), [0_u64; 0]);
        assert!(traces.exported.is_empty());
    }
}
