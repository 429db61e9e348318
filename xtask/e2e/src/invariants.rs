//! Invariants of all requests that the sidecar sends.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogramDataPoint, HistogramDataPoint, Metric, NumberDataPoint, metric::Data,
};
use xtask_e2e::collector::otlp::{Attributes, Point, Request, attributes, number, resource};

/// One series: its resource, its metric and its point's attributes.
type Series = (Attributes, String, Attributes);

/// Checks the requests of one run of the sidecar, in the order of their arrival:
/// - all points of a request have one timestamp, later than the timestamp of the previous request;
/// - sums and histograms are cumulative, and no start time changes or is later than its point;
/// - counters, sums and buckets never decrease; a histogram's buckets add up to its count, and its zero bucket has a bound;
/// - a point has a value unless it marks the end of its series. If the series continues after its end, it keeps its values or
///   has a later start.
pub fn check(requests: &[Request]) -> anyhow::Result<()> {
    let mut seen = Seen::default();
    for (index, request) in requests.iter().enumerate() {
        let mut time = None;
        for (of, metric) in request.metrics() {
            seen.metric(&attributes(resource(of)), metric, &mut time)
                .map_err(|error| error.context(format!("request {}, {}", index + 1, metric.name)))?;
        }
        let Some(time) = time else { bail!("request {} has no points", index + 1) };
        ensure!(seen.time < time, "request {} is no later than the previous one", index + 1);
        seen.time = time;
    }
    Ok(())
}

/// State of every series after the requests checked so far.
#[derive(Default)]
struct Seen {
    time: u64,
    starts: BTreeMap<Series, u64>,
    sums: BTreeMap<Series, f64>,
    histograms: BTreeMap<Series, ExponentialHistogramDataPoint>,
    /// Histograms with fixed bounds.
    bounded: BTreeMap<Series, HistogramDataPoint>,
    /// Times at which series ended.
    ends: BTreeMap<Series, u64>,
}

impl Seen {
    fn metric(&mut self, resource: &Attributes, metric: &Metric, time: &mut Option<u64>) -> anyhow::Result<()> {
        let series = |point: &dyn Point| (resource.clone(), metric.name.clone(), attributes(point.attributes()));
        match &metric.data {
            Some(Data::Gauge(gauge)) => gauge.data_points.iter().try_for_each(|point| one_time(point, time)),
            Some(Data::Sum(sum)) => {
                cumulative(sum.aggregation_temporality)?;
                for point in &sum.data_points {
                    let series = series(point);
                    let has_values = number(point).is_some();
                    if self.continues(&series, point, time, has_values)? {
                        self.sum(series, point, sum.is_monotonic)?;
                    }
                }
                Ok(())
            }
            Some(Data::ExponentialHistogram(histogram)) => {
                cumulative(histogram.aggregation_temporality)?;
                for point in &histogram.data_points {
                    let series = series(point);
                    if self.continues(&series, point, time, point.count > 0)? {
                        self.histogram(series, point)?;
                    }
                }
                Ok(())
            }
            Some(Data::Histogram(histogram)) => {
                cumulative(histogram.aggregation_temporality)?;
                for point in &histogram.data_points {
                    let series = series(point);
                    if self.continues(&series, point, time, point.count > 0)? {
                        self.bounded(series, point)?;
                    }
                }
                Ok(())
            }
            _ => bail!("the metric is neither a sum, a gauge nor a histogram"),
        }
    }

    /// Checks a point of a series. Returns false if it marks the end, where it must have no values.
    fn continues(
        &mut self,
        series: &Series,
        point: &dyn Point,
        time: &mut Option<u64>,
        has_values: bool,
    ) -> anyhow::Result<bool> {
        self.cumulative_point(series, point, time)?;
        ensure!(!point.is_end() || !has_values, "values at the end of a series: {:?}", series.2);
        Ok(!point.is_end())
    }

    fn cumulative_point(&mut self, series: &Series, point: &dyn Point, time: &mut Option<u64>) -> anyhow::Result<()> {
        one_time(point, time)?;
        let start = point.start();
        ensure!(start > 0, "a point has no start time: {:?}", series.2);
        ensure!(start <= point.time(), "a point starts after its timestamp: {:?}", series.2);
        self.restart(series, point);
        let first = *self.starts.entry(series.clone()).or_insert(start);
        ensure!(first == start, "the start moved from {first} to {start}: {:?}", series.2);
        Ok(())
    }

    /// Forgets the values of an ended series if this point starts after the end.
    fn restart(&mut self, series: &Series, point: &dyn Point) {
        if point.is_end() {
            self.ends.insert(series.clone(), point.time());
        } else if self.ends.remove(series).is_some_and(|end| end < point.start()) {
            self.starts.remove(series);
            self.sums.remove(series);
            self.histograms.remove(series);
            self.bounded.remove(series);
        }
    }

    fn sum(&mut self, series: Series, point: &NumberDataPoint, monotonic: bool) -> anyhow::Result<()> {
        let Some(value) = number(point) else { bail!("a point without a value: {:?}", series.2) };
        let attributes = series.2.clone();
        let before = self.sums.insert(series, value).unwrap_or(0.0);
        ensure!(!monotonic || value >= before, "a counter fell from {before} to {value}: {attributes:?}");
        Ok(())
    }

    fn histogram(&mut self, series: Series, now: &ExponentialHistogramDataPoint) -> anyhow::Result<()> {
        let attributes = series.2.clone();
        let total = now.zero_count + buckets(now).map(|(_, count)| count).sum::<u64>();
        ensure!(total == now.count, "the buckets hold {total} values, the count is {}: {attributes:?}", now.count);
        let sum = now.sum.unwrap_or_default();
        ensure!(now.count == 0 || sum > 0.0, "{} positive values have the sum {sum}: {attributes:?}", now.count);
        ensure!(now.zero_threshold > 0.0, "the zero bucket has no upper bound: {attributes:?}");
        let Some(before) = self.histograms.insert(series, now.clone()) else { return Ok(()) };
        ensure!(before.scale == now.scale, "the scale changed: {attributes:?}");
        ensure!(before.sum <= now.sum, "the sum fell from {:?} to {sum}: {attributes:?}", before.sum);
        ensure!(before.zero_count <= now.zero_count, "the zero bucket fell: {attributes:?}");
        let counts: BTreeMap<_, _> = buckets(now).collect();
        for (index, count) in buckets(&before) {
            let grown = counts.get(&index).copied().unwrap_or(0);
            ensure!(count <= grown, "bucket {index} fell: {attributes:?}");
        }
        Ok(())
    }

    fn bounded(&mut self, series: Series, now: &HistogramDataPoint) -> anyhow::Result<()> {
        let attributes = series.2.clone();
        let total: u64 = now.bucket_counts.iter().sum();
        ensure!(total == now.count, "the buckets hold {total} values, the count is {}: {attributes:?}", now.count);
        let (bounds, buckets) = (now.explicit_bounds.len(), now.bucket_counts.len());
        ensure!(buckets == bounds + 1, "{bounds} bounds divide {buckets} buckets: {attributes:?}");
        let Some(before) = self.bounded.insert(series, now.clone()) else { return Ok(()) };
        ensure!(before.explicit_bounds == now.explicit_bounds, "the bounds changed: {attributes:?}");
        ensure!(before.sum <= now.sum, "the sum fell from {:?} to {:?}: {attributes:?}", before.sum, now.sum);
        let mut pairs = before.bucket_counts.iter().zip(&now.bucket_counts);
        ensure!(pairs.all(|(before, now)| before <= now), "a bucket fell: {attributes:?}");
        Ok(())
    }
}

fn one_time(point: &(impl Point + ?Sized), time: &mut Option<u64>) -> anyhow::Result<()> {
    let of_request = *time.get_or_insert(point.time());
    let time = point.time();
    ensure!(time == of_request, "a point has the timestamp {time}, others in its request have {of_request}");
    Ok(())
}

fn cumulative(temporality: i32) -> anyhow::Result<()> {
    ensure!(temporality == AggregationTemporality::Cumulative as i32, "the temporality is {temporality}");
    Ok(())
}

/// Iterates over the positive buckets of a histogram: index and count.
fn buckets(histogram: &ExponentialHistogramDataPoint) -> impl Iterator<Item = (i64, u64)> {
    histogram
        .positive
        .iter()
        .flat_map(|buckets| (i64::from(buckets.offset)..).zip(buckets.bucket_counts.iter().copied()))
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
                        "aggregationTemporality": 2}},
                    {"name": "edge", "unit": "s", "histogram": {
                        "dataPoints": [{"startTimeUnixNano": "100", "timeUnixNano": time, "count": count, "sum": value,
                            "explicitBounds": [0.1, 1.0], "bucketCounts": ["1", counts[0], counts[1]], "flags": 0}],
                        "aggregationTemporality": 2}}
                ]}]
            }]})
        };
        vec![request("200", 1.0, ["2", "3"], "6"), request("300", 2.0, ["2", "4"], "7")]
    }

    fn verdict(requests: Vec<Value>) -> anyhow::Result<()> {
        let parsed: anyhow::Result<Vec<Request>> =
            requests.iter().map(|line| Request::parse(&line.to_string())).collect();
        check(&parsed?)
    }

    /// Returns the error after a change of one value in the second request. `path` is relative to the list of metrics.
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
        let bounded = "2/histogram/dataPoints/0";
        let cases = [
            (format!("{sum}/timeUnixNano"), json!("301"), "others in its request"),
            (format!("{sum}/startTimeUnixNano"), json!("101"), "the start moved"),
            (format!("{sum}/startTimeUnixNano"), json!("301"), "starts after its timestamp"),
            (format!("{sum}/startTimeUnixNano"), json!("0"), "no start time"),
            (format!("{sum}/asDouble"), json!(0.5), "a counter fell"),
            ("0/sum/aggregationTemporality".into(), json!(1), "temporality is 1"),
            ("1/exponentialHistogram/aggregationTemporality".into(), json!(1), "temporality is 1"),
            (format!("{histogram}/count"), json!("8"), "the buckets hold 7"),
            (format!("{histogram}/positive/bucketCounts"), json!(["1", "5"]), "bucket -40 fell"),
            (format!("{histogram}/positive/offset"), json!(-39), "bucket -40 fell"),
            (format!("{histogram}/sum"), json!(0.5), "the sum fell"),
            (format!("{histogram}/scale"), json!(1), "the scale changed"),
            (format!("{sum}/flags"), json!(1), "values at the end"),
            (format!("{histogram}/flags"), json!(1), "values at the end"),
            (format!("{bounded}/count"), json!("8"), "the buckets hold 7"),
            (format!("{bounded}/bucketCounts"), json!(["2", "1", "4"]), "a bucket fell"),
            (format!("{bounded}/bucketCounts"), json!(["3", "4"]), "divide 2 buckets"),
            (format!("{bounded}/explicitBounds"), json!([0.2, 1.0]), "the bounds changed"),
            (format!("{bounded}/sum"), json!(0.5), "the sum fell"),
            (format!("{bounded}/flags"), json!(1), "values at the end"),
            (format!("{histogram}/zeroThreshold"), json!(0.0), "zero bucket has no upper bound"),
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
            metrics[2]["histogram"]["dataPoints"][0] =
                json!({"startTimeUnixNano": "100", "timeUnixNano": time, "flags": 1, "count": "0"});
            request
        };
        let since = |mut request: Value, start: &str| {
            let metrics = &mut request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
            metrics[0]["sum"]["dataPoints"][0]["startTimeUnixNano"] = json!(start);
            metrics[1]["exponentialHistogram"]["dataPoints"][0]["startTimeUnixNano"] = json!(start);
            metrics[2]["histogram"]["dataPoints"][0]["startTimeUnixNano"] = json!(start);
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
