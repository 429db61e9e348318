//! What a metric is: the facts from which the wire, the table, `undercurrent signals` and docs/signals.md are made.

/// The instrumentation scope of everything exported.
pub const SCOPE: &str = "undercurrent";
/// The semantic conventions that the names follow.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// How a metric's points are to be read. Sums are cumulative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instrument {
    /// A sum that only grows.
    Counter,
    /// A sum that may fall.
    UpDownCounter,
    /// A value at a time.
    Gauge,
    /// A base-2 exponential histogram.
    ExponentialHistogram,
}

impl Instrument {
    /// The words for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::UpDownCounter => "up-down counter",
            Self::Gauge => "gauge",
            Self::ExponentialHistogram => "exponential histogram",
        }
    }
}

/// An attribute of a metric's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeKey {
    /// Its key, from the semantic conventions where they have one.
    pub key: &'static str,
    /// The values it takes, or what they are.
    pub values: &'static [&'static str],
    /// Whether it is only there when the configuration asks for it.
    pub opt_in: bool,
}

/// How a live view shows a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// In a section with a row for each point. Metrics that share all but the last part of their name and have the same
    /// attributes share a section, a column each.
    Section,
    /// In a section with what others say of the same traffic, the middle and the tail of each. Histograms alone.
    Beside(&'static [Side]),
    /// On one line at the end, and only the points that are not zero: what was lost, refused or degraded.
    Notice {
        /// Attribute values of points that are as they should be; such points are left out.
        normal: &'static [&'static str],
    },
    /// Not at all.
    Hidden,
}

/// A histogram to be seen beside another one, with the same attributes but for those that it is chosen by.
#[derive(Debug, PartialEq, Eq)]
pub struct Side {
    /// What it is called there.
    pub heading: &'static str,
    /// Its name in the catalogue.
    pub metric: &'static str,
    /// The attributes of its points that are shown.
    pub attributes: &'static [(&'static str, &'static str)],
}

/// One metric of the catalogue.
#[derive(Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its name, dotted.
    pub name: &'static str,
    /// Its UCUM unit.
    pub unit: &'static str,
    /// One sentence for people.
    pub description: &'static str,
    /// How its points are to be read.
    pub instrument: Instrument,
    /// The attributes of its points.
    pub attributes: &'static [AttributeKey],
    /// How a live view shows it.
    pub view: View,
}
