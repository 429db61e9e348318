//! What must hold of everything that the sidecar sends, whatever it measured.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};

use xtask_e2e::collector::otlp::{Attributes, Data, ExponentialHistogram, Metric, Number, Point, Request};

/// The temporality of sums and histograms on the wire.
const CUMULATIVE: u8 = 2;

/// One series: its resource, its metric and its point's attributes.
type Series = (Attributes, String, Attributes);

/// Checks the requests of one run of the sidecar, in the order they came:
/// - all points of a request have one timestamp, later than the request's before it;
/// - sums and histograms are cumulative, and no start time changes or lies after its point;
/// - counters, sums and buckets never fall; a histogram's buckets add up to its count, and its zero bucket has a bound;
/// - a point has a value unless it says that its series is over. What is started again afterwards counts on, or counts
///   anew since then.
pub fn check(requests: &[Request]) -> anyhow::Result<()> {
    let mut seen = Seen::default();
    for (index, request) in requests.iter().enumerate() {
        let mut time = None;
        for (resource, metric) in request.metrics() {
            seen.metric(resource, metric, &mut time)
                .map_err(|error| error.context(format!("request {}, {}", index + 1, metric.name)))?;
        }
        let Some(time) = time else { bail!("request {} holds no points", index + 1) };
        ensure!(seen.time < time, "request {} is no later than the one before it", index + 1);
        seen.time = time;
    }
    Ok(())
}

/// What earlier requests said.
#[derive(Default)]
struct Seen {
    time: u64,
    starts: BTreeMap<Series, u64>,
    sums: BTreeMap<Series, f64>,
    histograms: BTreeMap<Series, ExponentialHistogram>,
    /// When the series ended that were said to be over.
    over: BTreeMap<Series, u64>,
}

impl Seen {
    fn metric(&mut self, resource: &Attributes, metric: &Metric, time: &mut Option<u64>) -> anyhow::Result<()> {
        let series = |attributes: &Attributes| (resource.clone(), metric.name.clone(), attributes.clone());
        if let Some(gauge) = &metric.gauge {
            for point in &gauge.data_points {
                one_time(point, time)?;
            }
        } else if let Some(sum) = &metric.sum {
            cumulative(sum)?;
            for point in &sum.data_points {
                self.cumulative_point(series(&point.attributes), point, time)?;
                if !point.is_end() {
                    self.sum(series(&point.attributes), &point.value, sum.is_monotonic)?;
                } else {
                    ensure!(point.value.get().is_none(), "a value at the end of a series: {:?}", point.attributes);
                }
            }
        } else if let Some(histogram) = &metric.exponential_histogram {
            cumulative(histogram)?;
            for point in &histogram.data_points {
                self.cumulative_point(series(&point.attributes), point, time)?;
                if !point.is_end() {
                    self.histogram(series(&point.attributes), &point.value)?;
                } else {
                    ensure!(point.value.count == 0, "values at the end of a series: {:?}", point.attributes);
                }
            }
        } else {
            bail!("it is neither a sum, a gauge nor an exponential histogram");
        }
        Ok(())
    }

    fn cumulative_point<V>(&mut self, series: Series, point: &Point<V>, time: &mut Option<u64>) -> anyhow::Result<()> {
        one_time(point, time)?;
        let start = point.start_time_unix_nano;
        ensure!(start > 0, "a point does not say since when it counts: {:?}", point.attributes);
        ensure!(start <= point.time_unix_nano, "a point starts after its own time: {:?}", point.attributes);
        self.begin_anew(&series, point);
        let first = *self.starts.entry(series).or_insert(start);
        ensure!(first == start, "the start moved from {first} to {start}: {:?}", point.attributes);
        Ok(())
    }

    /// Forgets what a series had before its end, where this point counts since a time after that.
    fn begin_anew<V>(&mut self, series: &Series, point: &Point<V>) {
        if point.is_end() {
            self.over.insert(series.clone(), point.time_unix_nano);
        } else if self.over.remove(series).is_some_and(|end| end < point.start_time_unix_nano) {
            self.starts.remove(series);
            self.sums.remove(series);
            self.histograms.remove(series);
        }
    }

    fn sum(&mut self, series: Series, number: &Number, monotonic: bool) -> anyhow::Result<()> {
        let Some(value) = number.get() else { bail!("a point without a value: {:?}", series.2) };
        let attributes = series.2.clone();
        let before = self.sums.insert(series, value).unwrap_or(0.0);
        ensure!(!monotonic || value >= before, "a counter fell from {before} to {value}: {attributes:?}");
        Ok(())
    }

    fn histogram(&mut self, series: Series, now: &ExponentialHistogram) -> anyhow::Result<()> {
        let total = now.zero_count + now.positive.bucket_counts.iter().sum::<u64>();
        ensure!(total == now.count, "the buckets hold {total} values, the count says {}: {:?}", now.count, series.2);
        let attributes = series.2.clone();
        ensure!(
            now.count == 0 || now.sum > 0.0,
            "{} values of positive length add up to {}: {attributes:?}",
            now.count,
            now.sum
        );
        ensure!(now.zero_threshold > 0.0, "nobody can tell what the zero bucket holds: {attributes:?}");
        let Some(before) = self.histograms.insert(series, now.clone()) else { return Ok(()) };
        ensure!(before.scale == now.scale, "the scale changed: {attributes:?}");
        ensure!(before.sum <= now.sum, "the sum fell from {} to {}: {attributes:?}", before.sum, now.sum);
        ensure!(before.zero_count <= now.zero_count, "the zero bucket fell: {attributes:?}");
        for (position, count) in before.positive.bucket_counts.iter().enumerate() {
            let index = before.positive.offset + i32::try_from(position)?;
            ensure!(*count <= bucket(now, index), "bucket {index} fell: {attributes:?}");
        }
        Ok(())
    }
}

fn one_time<V>(point: &Point<V>, time: &mut Option<u64>) -> anyhow::Result<()> {
    let of_request = *time.get_or_insert(point.time_unix_nano);
    ensure!(
        point.time_unix_nano == of_request,
        "a point is of {}, others in its request are of {of_request}",
        point.time_unix_nano
    );
    Ok(())
}

fn cumulative<V>(data: &Data<V>) -> anyhow::Result<()> {
    ensure!(data.aggregation_temporality == CUMULATIVE, "its temporality is {}", data.aggregation_temporality);
    Ok(())
}

/// How many values a histogram has in a bucket.
fn bucket(histogram: &ExponentialHistogram, index: i32) -> u64 {
    let position = usize::try_from(i64::from(index) - i64::from(histogram.positive.offset));
    position.ok().and_then(|position| histogram.positive.bucket_counts.get(position)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Two requests as the collector's file exporter writes them.
    fn requests() -> Vec<Value> {
        let request = |time: &str, value: f64, counts: [&str; 2], count: &str| {
            json!({"resourceMetrics": [{
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "undercurrent"}}]},
                "scopeMetrics": [{"scope": {"name": "undercurrent"}, "metrics": [
                    {"name": "time", "unit": "s", "sum": {
                        "dataPoints": [{"startTimeUnixNano": "100", "timeUnixNano": time, "asDouble": value,
                            "flags": 0}],
                        "aggregationTemporality": 2, "isMonotonic": true}},
                    {"name": "duration", "unit": "s", "exponentialHistogram": {
                        "dataPoints": [{"startTimeUnixNano": "100", "timeUnixNano": time, "count": count, "sum": value,
                            "scale": 2, "zeroCount": "1", "zeroThreshold": 6e-8,
                            "positive": {"offset": -40, "bucketCounts": counts}, "flags": 0}],
                        "aggregationTemporality": 2}}
                ]}]
            }]})
        };
        vec![request("200", 1.0, ["2", "3"], "6"), request("300", 2.0, ["2", "4"], "7")]
    }

    fn verdict(requests: Vec<Value>) -> anyhow::Result<()> {
        let parsed: Result<Vec<Request>, _> = requests.into_iter().map(serde_json::from_value).collect();
        check(&parsed?)
    }

    /// The verdict after one value of the second request was changed, found by its path below the metrics.
    fn changed(path: &str, value: Value) -> String {
        let mut requests = requests();
        let full = format!("/resourceMetrics/0/scopeMetrics/0/metrics/{path}");
        *requests[1].pointer_mut(&full).unwrap() = value;
        format!("{:#}", verdict(requests).unwrap_err())
    }

    #[test]
    fn sound_requests_pass() {
        verdict(requests()).unwrap();
    }

    #[test]
    fn each_violation_is_named() {
        let sum = "0/sum/dataPoints/0";
        let histogram = "1/exponentialHistogram/dataPoints/0";
        let cases = [
            (format!("{sum}/timeUnixNano"), json!("301"), "others in its request"),
            (format!("{sum}/startTimeUnixNano"), json!("101"), "the start moved"),
            (format!("{sum}/startTimeUnixNano"), json!("301"), "starts after its own time"),
            (format!("{sum}/startTimeUnixNano"), json!("0"), "since when it counts"),
            (format!("{sum}/asDouble"), json!(0.5), "a counter fell"),
            ("0/sum/aggregationTemporality".into(), json!(1), "temporality is 1"),
            ("1/exponentialHistogram/aggregationTemporality".into(), json!(1), "temporality is 1"),
            (format!("{histogram}/count"), json!("8"), "the buckets hold 7"),
            (format!("{histogram}/positive/bucketCounts"), json!(["1", "5"]), "bucket -40 fell"),
            (format!("{histogram}/positive/offset"), json!(-39), "bucket -40 fell"),
            (format!("{histogram}/sum"), json!(0.5), "the sum fell"),
            (format!("{histogram}/scale"), json!(1), "the scale changed"),
            (format!("{sum}/flags"), json!(1), "a value at the end"),
            (format!("{histogram}/flags"), json!(1), "values at the end"),
            (format!("{histogram}/zeroThreshold"), json!(0.0), "zero bucket holds"),
        ];
        for (path, value, complaint) in cases {
            let error = changed(&path, value.clone());
            assert!(error.contains(complaint), "{path} = {value}: {error}");
        }
    }

    #[test]
    fn a_series_that_is_over_counts_on_or_anew() {
        let end = |mut request: Value, time: &str| {
            let metrics = &mut request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
            metrics[0]["sum"]["dataPoints"][0] = json!({"startTimeUnixNano": "100", "timeUnixNano": time, "flags": 1});
            metrics[1]["exponentialHistogram"]["dataPoints"][0] =
                json!({"startTimeUnixNano": "100", "timeUnixNano": time, "flags": 1, "count": "0"});
            request
        };
        let since = |mut request: Value, start: &str| {
            let metrics = &mut request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
            metrics[0]["sum"]["dataPoints"][0]["startTimeUnixNano"] = json!(start);
            metrics[1]["exponentialHistogram"]["dataPoints"][0]["startTimeUnixNano"] = json!(start);
            request
        };
        let [first, second] = requests().try_into().unwrap();
        let at = |request: &Value, time: &str| {
            let text = request.to_string().replace(r#""timeUnixNano":"200""#, &format!(r#""timeUnixNano":"{time}""#));
            serde_json::from_str::<Value>(&text).unwrap()
        };
        verdict(vec![first.clone(), end(second.clone(), "300"), end(second.clone(), "400")]).unwrap();
        verdict(vec![end(first.clone(), "200"), second.clone()]).unwrap();
        verdict(vec![second.clone(), end(second.clone(), "400"), since(at(&first, "600"), "500")]).unwrap();
        for (start, complaint) in [("100", "fell"), ("350", "the start moved")] {
            let again = since(at(&first, "600"), start);
            let error = verdict(vec![second.clone(), end(second.clone(), "400"), again]).unwrap_err();
            assert!(format!("{error:#}").contains(complaint), "{error:#}");
        }
    }

    #[test]
    fn a_request_that_repeats_the_time_before_it_is_named() {
        let first = requests().remove(0);
        let error = verdict(vec![first.clone(), first]).unwrap_err();
        assert!(error.to_string().contains("no later"), "{error}");
    }
}
