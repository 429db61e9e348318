//! OTLP/JSON metrics, as the collector's file exporter writes them: only what tests look at.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// One export request: a line of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The metrics of one resource each.
    #[serde(default)]
    pub resource_metrics: Vec<ResourceMetrics>,
}

/// The metrics of one resource.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceMetrics {
    /// What was measured.
    #[serde(default)]
    pub resource: Resource,
    /// By instrumentation scope.
    #[serde(default)]
    pub scope_metrics: Vec<ScopeMetrics>,
}

/// A resource.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Resource {
    /// Its attributes.
    #[serde(default, deserialize_with = "attributes")]
    pub attributes: Attributes,
}

/// The metrics of one instrumentation scope.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeMetrics {
    /// Who measured.
    #[serde(default)]
    pub scope: Scope,
    /// The semantic conventions' schema.
    #[serde(default)]
    pub schema_url: String,
    /// What they measured.
    #[serde(default)]
    pub metrics: Vec<Metric>,
}

/// An instrumentation scope.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Scope {
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// A metric: one of the three kinds that the sidecar sends is there.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Its UCUM unit.
    #[serde(default)]
    pub unit: String,
    /// A counter or an up-down counter.
    pub sum: Option<Data<Number>>,
    /// A gauge.
    pub gauge: Option<Data<Number>>,
    /// An exponential histogram.
    pub exponential_histogram: Option<Data<ExponentialHistogram>>,
}

/// The points of one metric.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound = "V: Deserialize<'de>")]
pub struct Data<V> {
    /// One for each set of attributes.
    pub data_points: Vec<Point<V>>,
    /// 1 is delta, 2 is cumulative; gauges have none.
    #[serde(default)]
    pub aggregation_temporality: u8,
    /// Whether a sum only grows.
    #[serde(default)]
    pub is_monotonic: bool,
}

/// One point, with what all kinds have in common.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Point<V> {
    /// What it is about.
    #[serde(default, deserialize_with = "attributes")]
    pub attributes: Attributes,
    /// Since when it counts, in nanoseconds since 1970; 0 where it does not say.
    #[serde(default, deserialize_with = "integer")]
    pub start_time_unix_nano: u64,
    /// When it was read, in nanoseconds since 1970.
    #[serde(default, deserialize_with = "integer")]
    pub time_unix_nano: u64,
    /// Bit 0: no value was recorded.
    #[serde(default)]
    pub flags: u32,
    /// What was measured.
    #[serde(flatten)]
    pub value: V,
}

impl<V> Point<V> {
    /// Whether it says that its series is over, and so has no value.
    pub fn is_end(&self) -> bool {
        self.flags & 1 == 1
    }

    fn head(&self) -> Point<()> {
        let Self { start_time_unix_nano, time_unix_nano, flags, .. } = *self;
        Point { attributes: self.attributes.clone(), start_time_unix_nano, time_unix_nano, flags, value: () }
    }
}

/// A number, whole or not.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Number {
    as_double: Option<f64>,
    as_int: Option<Value>,
}

impl Number {
    /// The value; `None` where the point says that none was recorded.
    pub fn get(&self) -> Option<f64> {
        self.as_double.or_else(|| match self.as_int.as_ref()? {
            Value::String(text) => text.parse().ok(),
            number => number.as_f64(),
        })
    }
}

/// A base-2 exponential histogram of positive values.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExponentialHistogram {
    /// How many values.
    #[serde(default, deserialize_with = "integer")]
    pub count: u64,
    /// Their sum.
    #[serde(default)]
    pub sum: f64,
    /// A bucket's upper bound is `2^(2^-scale)` times its lower one.
    #[serde(default)]
    pub scale: i32,
    /// How many values are at most `zero_threshold`.
    #[serde(default, deserialize_with = "integer")]
    pub zero_count: u64,
    /// See `zero_count`.
    #[serde(default)]
    pub zero_threshold: f64,
    /// The other values.
    #[serde(default)]
    pub positive: Buckets,
}

/// A run of neighbouring buckets.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Buckets {
    /// The index of the first one.
    #[serde(default)]
    pub offset: i32,
    /// How many values each has.
    #[serde(default, deserialize_with = "integers")]
    pub bucket_counts: Vec<u64>,
}

/// Attributes by key, each value as the text or number that it is; of several, with a comma between.
pub type Attributes = BTreeMap<String, String>;

impl Metric {
    /// Its points without what they measured.
    pub fn heads(&self) -> impl Iterator<Item = Point<()>> {
        let numbers = self.sum.iter().chain(&self.gauge).flat_map(|data| &data.data_points).map(Point::head);
        let histograms = self.exponential_histogram.iter().flat_map(|data| &data.data_points).map(Point::head);
        numbers.chain(histograms)
    }
}

impl Request {
    /// Every complete line of a file; a last line without its end is still being written.
    pub fn read_all(file: &Path) -> anyhow::Result<Vec<Self>> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete
            .lines()
            .enumerate()
            .map(|(index, line)| {
                serde_json::from_str(line)
                    .with_context(|| format!("line {} of {} is no OTLP/JSON", index + 1, file.display()))
            })
            .collect()
    }

    /// When it was measured, in nanoseconds since 1970; `None` of one without points.
    pub fn time(&self) -> Option<u64> {
        self.metrics().flat_map(|(_, metric)| metric.heads()).next().map(|point| point.time_unix_nano)
    }

    /// Every metric with the resource it belongs to.
    pub fn metrics(&self) -> impl Iterator<Item = (&Attributes, &Metric)> {
        self.resource_metrics.iter().flat_map(|of_resource| {
            let metrics = of_resource.scope_metrics.iter().flat_map(|of_scope| &of_scope.metrics);
            metrics.map(|metric| (&of_resource.resource.attributes, metric))
        })
    }
}

/// OTLP/JSON writes 64-bit integers as strings; numbers are allowed too.
fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    as_integer(&Value::deserialize(deserializer)?).ok_or_else(|| de::Error::custom("not a whole number"))
}

fn integers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    let values = Vec::<Value>::deserialize(deserializer)?;
    let integers: Option<_> = values.iter().map(as_integer).collect();
    integers.ok_or_else(|| de::Error::custom("not all whole numbers"))
}

fn as_integer(value: &Value) -> Option<u64> {
    value.as_str().map_or_else(|| value.as_u64(), |text| text.parse().ok())
}

/// `[{"key": K, "value": {"stringValue": V}}]` and the other kinds of value.
fn attributes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Attributes, D::Error> {
    #[derive(Deserialize)]
    struct Attribute {
        key: String,
        value: Value,
    }
    let list = Vec::<Attribute>::deserialize(deserializer)?;
    let keys = list.len();
    let map: Attributes = list.into_iter().map(|attribute| (attribute.key, text(&attribute.value))).collect();
    if map.len() < keys {
        return Err(de::Error::custom("an attribute stands twice"));
    }
    Ok(map)
}

/// `{"stringValue": V}` and the like.
fn text(value: &Value) -> String {
    match value.as_object().and_then(|kinds| kinds.values().next()) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(array)) => {
            let values = array.get("values").and_then(Value::as_array);
            values.into_iter().flatten().map(text).collect::<Vec<_>>().join(",")
        }
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"resourceMetrics":[{"resource":{"attributes":[{"key":"cpu","value":{"intValue":"3"}}]},"scopeMetrics":[{"metrics":[{"name":"n","sum":{"dataPoints":[{"timeUnixNano":"7","asInt":"42"}],"aggregationTemporality":2}}]}]}]}"#;

    fn read(text: &str) -> anyhow::Result<Vec<Request>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        Request::read_all(file.path())
    }

    #[test]
    fn numbers_written_as_strings_are_numbers() {
        let requests = read(&format!("{LINE}\n")).unwrap();
        let (resource, metric) = requests[0].metrics().next().unwrap();
        assert_eq!(resource["cpu"], "3");
        let point = &metric.sum.as_ref().unwrap().data_points[0];
        assert_eq!((point.time_unix_nano, point.value.get()), (7, Some(42.0)));
    }

    #[test]
    fn several_texts_are_listed() {
        let several = r#"{"arrayValue":{"values":[{"stringValue":"a"},{"stringValue":"b"}]}}"#;
        let requests = read(&format!("{}\n", LINE.replace(r#"{"intValue":"3"}"#, several))).unwrap();
        assert_eq!(requests[0].resource_metrics[0].resource.attributes["cpu"], "a,b");
    }

    #[test]
    fn a_line_that_is_still_being_written_is_left_for_later() {
        assert_eq!(read(&format!("{LINE}\n{}", &LINE[..40])).unwrap().len(), 1);
        assert_eq!(read(&LINE[..40]).unwrap().len(), 0);
    }

    #[test]
    fn a_line_that_is_no_request_is_named() {
        let error = read(&format!("{LINE}\nnonsense\n")).unwrap_err();
        assert!(error.to_string().starts_with("line 2 of "), "{error}");
    }

    #[test]
    fn an_attribute_that_stands_twice_is_refused() {
        let twice = r#"{"key":"cpu","value":{"intValue":"3"}}"#;
        let error = read(&format!("{}\n", LINE.replace(twice, &format!("{twice},{twice}")))).unwrap_err();
        assert!(format!("{error:#}").contains("stands twice"), "{error:#}");
    }
}
