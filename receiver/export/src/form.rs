//! The form of exported metrics: temporality and histograms, as the collector prefers them.

use crate::telemetry::Instrument;

/// The temporality of metrics (`OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Temporality {
    /// All sums and histograms count since the start of their series.
    #[default]
    Cumulative,
    /// Counters and histograms count since the last delivery.
    Delta,
    /// Histograms count since the last delivery. Counters are read as observable counters are, and stay cumulative.
    LowMemory,
}

/// The kind of exported histograms (`OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Histograms {
    /// Base-2 exponential histograms.
    #[default]
    Exponential,
    /// Histograms with powers of two as bounds, which are bounds of the exponential histograms too.
    Explicit,
}

/// The form of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// The temporality.
    pub temporality: Temporality,
    /// The kind of histograms.
    pub histograms: Histograms,
}

impl Histograms {
    /// Returns the kind of an instrument's histograms.
    pub(crate) fn of(self, instrument: Instrument) -> Self {
        if instrument == Instrument::Histogram { Self::Explicit } else { self }
    }
}

impl Form {
    /// Returns true if the points of an instrument count since the last delivery. The value of an up-down counter is a total, so
    /// it is always cumulative.
    pub(crate) fn is_delta(self, instrument: Instrument) -> bool {
        match instrument {
            Instrument::ExponentialHistogram | Instrument::Histogram => self.temporality != Temporality::Cumulative,
            Instrument::Counter => self.temporality == Temporality::Delta,
            Instrument::UpDownCounter | Instrument::Gauge => false,
        }
    }
}
