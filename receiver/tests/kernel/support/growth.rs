//! Invariants of all lines of a sidecar: cumulative points never decrease, and never grow faster than possible.

use std::{collections::BTreeMap, panic::catch_unwind, thread, time::Duration};

use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogramDataPoint, exponential_histogram_data_point::Buckets,
};

use super::{
    line::{Attributes, Line, Point, Value},
    surroundings::patience,
};

/// Counters of CPU time, which is limited by the number of CPUs.
const CPU_TIMES: [&str; 3] = ["undercurrent.cpu.time", "undercurrent.network.cpu.time", "process.cpu.time"];
/// Time that CPU time may be ahead of a line's time. The worker reads the files after it took the timestamp, and the kernel
/// counts some of them in ticks.
const AHEAD: Duration = Duration::from_millis(100);
/// More events per second than one CPU can process. A wrapped counter of 32 or 64 bits grows by more.
const EVENTS: f64 = 1e7;
/// The counters of bytes.
const BYTES: [&str; 3] = ["undercurrent.network.receive.io", "undercurrent.tcp.io", "undercurrent.tcp.peer.io"];
/// The size of the largest packet that a sender combines, in bytes.
const LARGEST_PACKET: f64 = 65_536.0;
/// Longer than any packet waits in a test, in seconds.
const LONGEST: f64 = 120.0;

/// The state of the wall clock during a run.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The clock was not set.
    Steady,
    /// The clock was set, and the run lasted this long. Durations of packets in flight are wrong.
    Set(Duration),
}

/// The instance of a point's resource, the metric and the attributes.
type Series<'a> = (&'a str, &'a str, &'a Attributes);

/// The last point of a series, and the time of its line.
#[derive(Clone, Copy)]
struct Last<'a> {
    time: u64,
    point: &'a Point,
}

/// Asserts that no cumulative point is less than its predecessor with an equal start time, and that growth is
/// physically possible. The lines are from one run, or from several consecutive runs. A series may restart after
/// its last point.
pub fn assert_sound(lines: &[Line], clock: Clock) {
    assert!(lines.len() > 1, "{} lines show no growth", lines.len());
    let mut series: BTreeMap<Series<'_>, Last<'_>> = BTreeMap::new();
    for pair in lines.windows(2) {
        assert!(pair[0].time < pair[1].time || matches!(clock, Clock::Set(_)), "the time of lines goes back");
    }
    for (nth, line) in lines.iter().enumerate() {
        let mut grown: BTreeMap<&str, f64> = BTreeMap::new();
        for point in &line.points {
            let key = (point.resource["service.instance.id"].as_str(), point.metric.as_str(), &point.attributes);
            let is_cumulative = matches!(point.value, Value::Counter(_) | Value::Histogram(_));
            assert!(!is_cumulative || point.start > 0, "no start: {point:?}");
            let before = series.insert(key, Last { time: line.time, point });
            if let Value::Histogram(histogram) = &point.value {
                assert_consistent(histogram, point);
            }
            *grown.entry(&point.metric).or_default() += growth(before, point, clock);
        }
        if let Some(before) = nth.checked_sub(1) {
            assert_possible(&grown, elapsed(&lines[before], line, clock));
        }
    }
}

/// Returns the seconds between two lines, or of the whole run if the clock was set.
fn elapsed(before: &Line, line: &Line, clock: Clock) -> f64 {
    match clock {
        Clock::Steady => (line.time - before.time) as f64 / 1e9,
        Clock::Set(run) => run.as_secs_f64(),
    }
}

/// Returns the growth of a counter, or of a histogram's count, since the previous point.
fn growth(before: Option<Last<'_>>, point: &Point, clock: Clock) -> f64 {
    let Some(before) = before else { return 0.0 };
    if before.point.start != point.start {
        let is_later = point.start > before.time || matches!(clock, Clock::Set(_));
        assert!(
            is_later || !is_sum(point),
            "a series began anew before it had ended: {:?}, then {point:?}",
            before.point
        );
        return 0.0;
    }
    match (&before.point.value, &point.value) {
        (Value::Counter(old), Value::Counter(new)) => {
            assert!(old <= new, "{} fell from {old} to {new}: {point:?}", point.metric);
            new - old
        }
        (Value::Histogram(old), Value::Histogram(new)) => {
            assert_grew(old, new, point, clock);
            (new.count - old.count) as f64
        }
        (Value::Number(_), Value::Number(_)) | (_, Value::Over) => 0.0,
        (old, new) => panic!("{} changed its kind, or went on after its end: {old:?}, then {new:?}", point.metric),
    }
}

const fn is_sum(point: &Point) -> bool {
    matches!(point.value, Value::Counter(_) | Value::Histogram(_))
}

/// Returns the counts of a histogram by bucket.
fn buckets(histogram: &ExponentialHistogramDataPoint) -> BTreeMap<i32, u64> {
    let buckets = histogram.positive.clone().unwrap_or_default();
    (buckets.offset..).zip(buckets.bucket_counts).collect()
}

fn assert_consistent(histogram: &ExponentialHistogramDataPoint, point: &Point) {
    let count = histogram.zero_count + buckets(histogram).values().sum::<u64>();
    assert_eq!(count, histogram.count, "buckets and count disagree: {point:?}");
}

fn assert_grew(old: &ExponentialHistogramDataPoint, new: &ExponentialHistogramDataPoint, point: &Point, clock: Clock) {
    let (old_buckets, new_buckets) = (buckets(old), buckets(new));
    let fell = old_buckets.iter().find(|(index, count)| new_buckets.get(index).copied().unwrap_or(0) < **count);
    assert_eq!(fell, None, "a bucket fell: {point:?}");
    assert!(old.zero_count <= new.zero_count && old.sum <= new.sum, "the zero bucket or the sum fell: {point:?}");
    let (longer, more) = (new.sum.unwrap_or(0.0) - old.sum.unwrap_or(0.0), (new.count - old.count) as f64);
    let is_possible = longer <= LONGEST * more || matches!(clock, Clock::Set(_));
    assert!(is_possible, "{longer} s in {more} durations: {point:?}");
}

/// Asserts that the growth of each metric over all resources is possible in a time.
fn assert_possible(grown: &BTreeMap<&str, f64>, seconds: f64) {
    let cpus = thread::available_parallelism().unwrap().get() as f64;
    for (metric, grown) in grown {
        let events = (seconds + 1.0) * cpus * EVENTS;
        let most = match *metric {
            metric if BYTES.contains(&metric) => events * LARGEST_PACKET,
            metric if CPU_TIMES.contains(&metric) => (seconds + patience(AHEAD).as_secs_f64()) * cpus,
            _ => events,
        };
        assert!(*grown <= most, "{metric} grew by {grown} in {seconds} s on {cpus} CPUs");
    }
}

const SECOND: u64 = 1_000_000_000;

/// Returns a line at a second with one point of the node.
fn line(second: u64, metric: &str, start: u64, value: Value) -> Line {
    let resource = Attributes::from([("service.instance.id".to_owned(), "node".to_owned())]);
    let (metric, attributes, start) = (metric.to_owned(), Attributes::new(), start * SECOND);
    Line { time: second * SECOND, points: vec![Point { resource, metric, attributes, start, value }] }
}

/// Returns a histogram with these counts in two adjacent buckets.
fn histogram(counts: [u64; 2], sum: f64) -> Value {
    let positive = Some(Buckets { offset: -3, bucket_counts: counts.to_vec() });
    let count = counts.iter().sum();
    Value::Histogram(Box::new(ExponentialHistogramDataPoint { count, sum: Some(sum), positive, ..Default::default() }))
}

#[test]
fn lines_that_break_a_rule_are_refused() {
    let is_sound = |lines: [Line; 2]| catch_unwind(|| assert_sound(&lines, Clock::Steady)).is_ok();
    let counters = |metric, [from, to]: [f64; 2], [start, later]: [u64; 2]| {
        [line(5, metric, start, Value::Counter(from)), line(6, metric, later, Value::Counter(to))]
    };
    let histograms = |counts, sum| [line(5, "d", 1, histogram([3, 4], 2.0)), line(6, "d", 1, histogram(counts, sum))];
    let cases = [
        (counters("packets", [7.0, 9.0], [1, 1]), true, "growth"),
        (counters("packets", [9.0, 7.0], [1, 1]), false, "a fall"),
        (counters("packets", [7.0, 4_294_967_303.0], [1, 1]), false, "a jump"),
        (counters("packets", [9.0, 7.0], [1, 6]), true, "a new start"),
        (counters("packets", [9.0, 7.0], [1, 4]), false, "a new start before the last point"),
        (counters("packets", [7.0, 9.0], [0, 0]), false, "no start"),
        (counters("process.cpu.time", [7.0, 8.0], [1, 1]), true, "a second in a second"),
        (counters("process.cpu.time", [7.0, 1000.0], [1, 1]), false, "minutes in a second"),
        (histograms([3, 5], 2.5), true, "one more duration"),
        (histograms([2, 6], 2.5), false, "a bucket that fell"),
        (histograms([3, 5], 1.5), false, "a sum that fell"),
        (histograms([3, 5], 3000.0), false, "a duration of an hour"),
    ];
    for (lines, expected, case) in cases {
        assert_eq!(is_sound(lines), expected, "{case}");
    }
}
