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
#[derive(Clone, Copy, Debug)]
pub struct AttributeKey {
    /// The key, from the semantic conventions where they have one.
    pub key: &'static str,
    known: Known,
    /// A phrase for the values that are not known in advance; `None` if there are no others.
    pub others: Option<&'static str>,
    /// True if the attribute exists only when the configuration requests it.
    pub opt_in: bool,
}

/// Values that are known in advance.
#[derive(Clone, Copy, Debug)]
enum Known {
    Listed(&'static [&'static str]),
    /// Computed from the tables that define them.
    Derived(fn() -> Vec<&'static str>),
}

impl AttributeKey {
    /// An attribute with these values.
    #[must_use]
    pub const fn listed(key: &'static str, values: &'static [&'static str]) -> Self {
        Self { key, known: Known::Listed(values), others: None, opt_in: false }
    }

    /// An attribute with the values of a table.
    #[must_use]
    pub const fn derived(key: &'static str, values: fn() -> Vec<&'static str>) -> Self {
        Self { key, known: Known::Derived(values), others: None, opt_in: false }
    }

    /// An attribute with values that are not known in advance, and a phrase for them.
    #[must_use]
    pub const fn open(key: &'static str, phrase: &'static str) -> Self {
        Self::listed(key, &[]).or(phrase)
    }

    /// The attribute with other values too, and a phrase for them.
    #[must_use]
    pub const fn or(self, phrase: &'static str) -> Self {
        Self { others: Some(phrase), ..self }
    }

    /// The attribute, if the configuration requests it.
    #[must_use]
    pub const fn opt_in(self) -> Self {
        Self { opt_in: true, ..self }
    }

    /// The values that are known in advance.
    #[must_use]
    pub fn known(&self) -> Vec<&'static str> {
        match self.known {
            Known::Listed(values) => values.to_vec(),
            Known::Derived(values) => values(),
        }
    }

    /// The known values, and the phrase for the others.
    #[must_use]
    pub fn values(&self) -> Vec<&'static str> {
        self.known().into_iter().chain(self.others).collect()
    }

    /// True if the attribute may have a value.
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
