//! Metric descriptors. The wire format, the table, `undercurrent signals` and docs/signals.md derive from them.

/// The instrumentation scope of all exported metrics.
pub const SCOPE: &str = "undercurrent";
/// The semantic conventions that define the metric names.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// The OpenTelemetry type of a metric. Sums are cumulative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instrument {
    /// A monotonic sum.
    Counter,
    /// A non-monotonic sum.
    UpDownCounter,
    /// A current value.
    Gauge,
    /// A base-2 exponential histogram.
    ExponentialHistogram,
    /// A histogram with fixed bounds, for programs that cannot read exponential histograms.
    Histogram,
}

impl Instrument {
    /// Returns the name for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::UpDownCounter => "up-down counter",
            Self::Gauge => "gauge",
            Self::ExponentialHistogram => "exponential histogram",
            Self::Histogram => "histogram",
        }
    }

    /// Returns true for both kinds of histograms.
    #[must_use]
    pub const fn is_histogram(self) -> bool {
        matches!(self, Self::ExponentialHistogram | Self::Histogram)
    }
}

/// An attribute of a metric's points.
#[derive(Clone, Copy, Debug)]
pub struct AttributeKey {
    /// The key, taken from the semantic conventions if they define it.
    pub key: &'static str,
    known: Known,
    /// A phrase for the values that are not known in advance. `None` if all values are known.
    pub others: Option<&'static str>,
    /// True if the attribute exists only when the configuration requests it.
    pub opt_in: bool,
}

/// The values that are known in advance.
#[derive(Clone, Copy, Debug)]
enum Known {
    Listed(&'static [&'static str]),
    /// Computed from the tables that define the values.
    Derived(fn() -> Vec<&'static str>),
}

impl AttributeKey {
    /// Returns an attribute with a fixed list of values.
    #[must_use]
    pub const fn listed(key: &'static str, values: &'static [&'static str]) -> Self {
        Self { key, known: Known::Listed(values), others: None, opt_in: false }
    }

    /// Returns an attribute with the values of a table.
    #[must_use]
    pub const fn derived(key: &'static str, values: fn() -> Vec<&'static str>) -> Self {
        Self { key, known: Known::Derived(values), others: None, opt_in: false }
    }

    /// Returns an attribute with values that are not known in advance, and a phrase for them.
    #[must_use]
    pub const fn open(key: &'static str, phrase: &'static str) -> Self {
        Self::listed(key, &[]).or(phrase)
    }

    /// Adds a phrase for values that are not known in advance.
    #[must_use]
    pub const fn or(self, phrase: &'static str) -> Self {
        Self { others: Some(phrase), ..self }
    }

    /// Marks the attribute as present only when the configuration requests it.
    #[must_use]
    pub const fn opt_in(self) -> Self {
        Self { opt_in: true, ..self }
    }

    /// Returns the values that are known in advance.
    #[must_use]
    pub fn known(&self) -> Vec<&'static str> {
        match self.known {
            Known::Listed(values) => values.to_vec(),
            Known::Derived(values) => values(),
        }
    }

    /// Returns the known values, followed by the phrase for other values.
    #[must_use]
    pub fn values(&self) -> Vec<&'static str> {
        self.known().into_iter().chain(self.others).collect()
    }

    /// Returns true if `value` is a valid value of the attribute.
    #[must_use]
    pub fn admits(&self, value: &str) -> bool {
        self.others.is_some() || self.known().contains(&value)
    }
}

impl PartialEq for AttributeKey {
    fn eq(&self, other: &Self) -> bool {
        (self.key, self.values(), self.opt_in) == (other.key, other.values(), other.opt_in)
    }
}

impl Eq for AttributeKey {}

/// The presentation of a metric in the live table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// A section with a row for each point. Metrics that differ only in the last part of their name, and have equal
    /// attributes, share a section with a column for each.
    Section,
    /// A section with a row for each resource that has the metric, and a column for each figure.
    Summary(&'static [Figure]),
    /// A section with the median and the tail of this histogram next to related histograms of equal traffic.
    Beside(&'static [Side]),
    /// One line at the end, with nonzero points only: losses, refusals, and degraded operation.
    Notice {
        /// Attribute values of points in normal operation. These points are left out.
        normal: &'static [&'static str],
    },
    /// One line at the end, with the points that have `error.type`.
    Failures,
    /// A section that compares an estimate from samples with exact measurements. It has a row for each value of the metric's
    /// first attribute.
    Estimate {
        /// The metric with the variance of each point.
        variance: &'static str,
        /// The metric with exact measurements.
        exact: &'static str,
        /// The metric with the whole busy time.
        busy: &'static str,
    },
    /// A tree of totals and their shares, without shares of a relative standard error above 20%.
    Sampled {
        /// The metric with the variance of each total.
        variance: &'static str,
        /// The attribute of the points that share a total.
        total: &'static str,
    },
    /// No presentation.
    Hidden,
}

/// A column of [`View::Summary`].
#[derive(Debug, PartialEq)]
pub struct Figure {
    /// The column heading.
    pub heading: &'static str,
    /// The order in which columns are dropped if space is short, highest first. Columns with zero stay.
    pub spare: u8,
    /// The metric name in the catalogue.
    pub metric: &'static str,
    /// The attributes that select the points.
    pub attributes: &'static [(&'static str, &'static str)],
    /// The value of the column.
    pub kind: FigureKind,
}

/// The value of a [`Figure`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FigureKind {
    /// The growth per second of a metric in this unit.
    Rate(&'static str),
    /// The growth of a time per second, as a share.
    Share,
    /// A quantile of a histogram in this unit.
    Quantile(f64, &'static str),
    /// The growth in this unit for each gigabyte (10^9) that a metric of this name in the catalogue counts in bytes.
    PerGigabyte(&'static str, &'static str),
}

// Figures are constants without `NaN`.
impl Eq for Figure {}

/// A histogram to show next to another histogram, with equal attributes except the selecting `attributes`.
#[derive(Debug, PartialEq, Eq)]
pub struct Side {
    /// The column heading.
    pub heading: &'static str,
    /// The metric name in the catalogue.
    pub metric: &'static str,
    /// The attributes that select the points to show.
    pub attributes: &'static [(&'static str, &'static str)],
}

/// One metric of the catalogue.
#[derive(Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The name, in dotted notation.
    pub name: &'static str,
    /// The UCUM unit.
    pub unit: &'static str,
    /// A description in one sentence.
    pub description: &'static str,
    /// The OpenTelemetry type.
    pub instrument: Instrument,
    /// The attributes of the points.
    pub attributes: &'static [AttributeKey],
    /// The presentation in the live table.
    pub view: View,
}

impl Descriptor {
    /// Returns a counter with a section in the live table.
    #[must_use]
    pub const fn counter(
        name: &'static str,
        unit: &'static str,
        description: &'static str,
        attributes: &'static [AttributeKey],
    ) -> Self {
        Self { name, unit, description, instrument: Instrument::Counter, attributes, view: View::Section }
    }
}
