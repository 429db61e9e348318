use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    time::Duration,
};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{
    Outputs,
    telemetry::{Attributes, Data, Metric, ResourceMetrics},
    testing::{DURATION, LOST, RATIO, after, histogram, lost, node, point, snapshots},
};

fn small() -> Snapshot {
    let layer = Attributes::new().with("undercurrent.network.layer", "ip");
    let reason = Attributes::new().with("cpu.logical_number", 3_u32).with("flag", true);
    let points = |attributes, data| vec![point(attributes, data)];
    node(
        vec![
            Metric { descriptor: &DURATION, points: points(layer, Data::Histogram(histogram(-70, vec![3, 1], 1e-5))) },
            Metric { descriptor: &LOST, points: points(reason, Data::Integer(9_007_199_254_740_993)) },
            Metric { descriptor: &RATIO, points: points(Attributes::new(), Data::Double(1.0)) },
        ],
        after(10),
    )
}

#[test]
fn lines_match_the_specification() -> io::Result<()> {
    let mut bytes = Vec::new();
    write_lines(&small(), &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    assert_eq!(text.matches('\n').count(), 1);
    let value: Value = serde_json::from_str(&text)?;
    insta::assert_snapshot!(serde_json::to_string_pretty(&value)?.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    Ok(())
}

#[test]
fn an_ended_series_has_a_point_without_a_value() -> io::Result<()> {
    let mut bytes = Vec::new();
    let snapshot = small();
    let resources = snapshot.resources.iter().map(ResourceMetrics::expired).collect();
    write_lines(&Snapshot { resources, ..snapshot }, &mut bytes)?;
    let value: Value = serde_json::from_slice(&bytes)?;
    insta::assert_snapshot!(serde_json::to_string_pretty(&value["resourceMetrics"][0]["scopeMetrics"][0]["metrics"])?);
    Ok(())
}

/// Checks the JSON type of a field by its lower camel case name in OTLP/JSON. The protocol definitions have 64-bit
/// integers (JSON strings), 32-bit integers and enumerations (JSON numbers), doubles, booleans, text, messages and
/// lists of messages.
fn check(key: &str, value: &Value) -> Result<(), String> {
    let is_number_text = |value: &Value| value.as_str().is_some_and(|text| text.parse::<i128>().is_ok());
    let fits = match key {
        "startTimeUnixNano" | "timeUnixNano" | "count" | "zeroCount" | "asInt" | "intValue" => is_number_text(value),
        "bucketCounts" => value.as_array().is_some_and(|list| list.iter().all(is_number_text)),
        "scale" | "offset" | "flags" | "aggregationTemporality" | "droppedAttributesCount" => value.is_i64(),
        "sum" if !value.is_object() => value.is_number(),
        "asDouble" | "zeroThreshold" => value.is_number(),
        "isMonotonic" | "boolValue" => value.is_boolean(),
        "name" | "version" | "description" | "unit" | "key" | "stringValue" | "schemaUrl" => value.is_string(),
        "resource" | "scope" | "positive" | "value" | "sum" | "gauge" | "exponentialHistogram" | "arrayValue" => {
            return fields(value.as_object().ok_or_else(|| format!("`{key}` is no object: {value}"))?);
        }
        "resourceMetrics" | "scopeMetrics" | "metrics" | "dataPoints" | "attributes" | "values" => {
            let list = value.as_array().ok_or_else(|| format!("`{key}` is no list: {value}"))?;
            return list.iter().filter_map(Value::as_object).try_for_each(fields);
        }
        _ => return Err(format!("`{key}` is no field of the metrics protocol in use here")),
    };
    if fits { Ok(()) } else { Err(format!("`{key}` has the wrong type: {value}")) }
}

fn fields(object: &serde_json::Map<String, Value>) -> Result<(), String> {
    object.iter().try_for_each(|(key, value)| check(key, value))
}

proptest! {
    #[test]
    fn every_line_has_the_specified_types_and_round_trips(snapshot in snapshots()) {
        let mut bytes = Vec::new();
        prop_assert!(write_lines(&snapshot, &mut bytes).is_ok());
        let parts: Vec<_> = requests(&snapshot, JSON_REQUEST_LIMIT).map(|part| part.request).collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        prop_assert_eq!(text.split_terminator('\n').count(), parts.len());
        for (line, part) in text.split_terminator('\n').zip(&parts) {
            let value: Value = serde_json::from_str(line).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let object = value.as_object().ok_or_else(|| TestCaseError::fail("no object"))?;
            fields(object).map_err(TestCaseError::fail)?;
            let read: ExportMetricsServiceRequest =
                serde_json::from_value(value).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(&read, part);
        }
    }
}

/// Opens the output of a file, and the bus that it subscribes to.
fn opened(path: &std::path::Path) -> Result<Outputs, OpenError> {
    let bus = Bus::default();
    let output = open(&bus, Target::File(path.to_owned()))?;
    Ok(Outputs::new(bus, vec![output]))
}

async fn finish(outputs: Outputs, snapshots: &[Snapshot]) -> crate::telemetry::Delivery {
    let statistics = outputs.statistics().remove(0);
    for snapshot in snapshots {
        outputs.bus().publish(&std::sync::Arc::new(snapshot.clone()));
    }
    outputs.shutdown(Duration::from_secs(20)).await.expect("no output fails");
    statistics.totals()
}

#[tokio::test]
async fn a_file_contains_the_published_snapshots_after_its_content() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("metrics.jsonl");
    fs::write(&path, "old content\n")?;
    let totals = finish(opened(&path)?, &[small()]).await;
    assert_eq!((totals.snapshots(None), totals.settled), (1, Some(after(10))));
    assert_eq!((totals.points, totals.dropped_snapshots), ([(None, 3)].into(), 0));
    let mut expected = b"old content\n".to_vec();
    write_lines(&small(), &mut expected)?;
    assert_eq!(fs::read(&path)?, expected);
    Ok(())
}

#[test]
fn an_unwritable_file_is_refused_with_a_reason_and_a_remedy() -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let refused = |path: PathBuf| match opened(&path) {
        Ok(_) => "opened".to_owned(),
        Err(error) => error.to_string().replace(&*folder.path().to_string_lossy(), "DIR"),
    };
    insta::assert_snapshot!(refused(folder.path().to_owned()), @"cannot write to `DIR`: Is a directory (os error 21); use the path of a file, not of a directory");
    insta::assert_snapshot!(refused(folder.path().join("absent/metrics.jsonl")), @"cannot write to `DIR/absent/metrics.jsonl`: No such file or directory (os error 2); create its directory first");
    fs::write(folder.path().join("file"), "")?;
    insta::assert_snapshot!(refused(folder.path().join("file/metrics.jsonl")), @"cannot write to `DIR/file/metrics.jsonl`: Not a directory (os error 20); a component of its path is not a directory; use another path");
    Ok(())
}

#[tokio::test]
async fn a_full_disk_counts_as_a_failure_and_does_not_end_the_output() -> Result<(), Box<dyn std::error::Error>> {
    let full = PathBuf::from("/dev/full");
    let outputs = opened(&full)?;
    let statistics = outputs.statistics().remove(0);
    outputs.bus().publish(&std::sync::Arc::new(small()));
    outputs.shutdown(Duration::from_secs(20)).await?;
    let totals = statistics.totals();
    assert_eq!((totals.snapshots(Some("no_space")), totals.settled), (1, None));
    assert_eq!((totals.points, totals.exports.len()), ([(Some("no_space"), 3)].into(), 1));
    Ok(())
}

/// A file with a limited number of free bytes.
struct Small {
    bytes: Vec<u8>,
    room: usize,
    rewinds: bool,
}

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.room - self.bytes.len());
        if taken == 0 && !bytes.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Small {
    fn rewind_to(&mut self, start: u64) -> io::Result<()> {
        if !self.rewinds {
            return Err(ErrorKind::Unsupported.into());
        }
        self.bytes.truncate(usize::try_from(start).unwrap_or(usize::MAX));
        Ok(())
    }

    fn start(&mut self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn replace(&mut self, _: File) {}
}

/// A file that fails every write.
struct Broken(ErrorKind);

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Broken {
    fn rewind_to(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn start(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn replace(&mut self, _: File) {}
}

#[tokio::test]
async fn only_a_full_disk_keeps_unwritten_snapshots_unsettled() -> io::Result<()> {
    for (kind, settled) in [(ErrorKind::QuotaExceeded, None), (ErrorKind::Other, Some(after(10)))] {
        let statistics = Statistics::new("json");
        let lines = Lines {
            name: "broken".to_owned(),
            sink: Broken(kind),
            torn: false,
            file: None,
            statistics: statistics.clone(),
        };
        let bus = Bus::default();
        let subscription = bus.subscribe(Topics::ALL, &statistics);
        let output = Output::in_thread(statistics, move || lines.run(subscription));
        assert_eq!(finish(Outputs::new(bus, vec![output]), &[small()]).await.settled, settled, "{kind}");
    }
    Ok(())
}

#[test]
fn lines_are_complete_after_a_full_disk() -> io::Result<()> {
    for rewinds in [true, false] {
        let sink = Small { bytes: Vec::new(), room: 2500, rewinds };
        let statistics = Statistics::new("json");
        let mut lines = Lines { name: "small".to_owned(), sink, torn: false, file: None, statistics };
        lines.write(|writer| write_lines(&small(), writer))?;
        assert!(
            lines.write(|writer| write_lines(&small(), writer)).is_err(),
            "the first line must leave less room than the second needs"
        );
        lines.sink.room = 100_000;
        lines.write(|writer| write_lines(&small(), writer))?;
        let text = String::from_utf8_lossy(&lines.sink.bytes).into_owned();
        let whole = text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count();
        assert_eq!((whole, text.lines().count()), (2, if rewinds { 2 } else { 3 }), "rewinds: {rewinds}");
    }
    Ok(())
}

#[tokio::test]
async fn a_closed_pipe_ends_the_output_without_a_failure() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU)?;
    // Opened for both reading and writing, so that neither open waits for the other end.
    let mut reader = OpenOptions::new().read(true).write(true).open(&path)?;
    let mut outputs = opened(&path)?;
    let statistics = outputs.statistics().remove(0);
    outputs.bus().publish(&std::sync::Arc::new(small()));
    let mut first = [0];
    reader = tokio::task::spawn_blocking(move || reader.read_exact(&mut first).map(|()| reader)).await??;
    drop(reader);
    // The previous line may have been in flight; this one finds the pipe closed.
    outputs.bus().publish(&lost(1, after(11)));
    tokio::time::timeout(Duration::from_secs(20), outputs.wait_for_end()).await??;
    assert!(statistics.totals().points.keys().all(Option::is_none));
    Ok(())
}

#[test]
fn a_permission_error_has_a_remedy() {
    // Root may write any file, so the test cannot provoke this error in the system.
    let error = OpenError::Open { path: "/etc/metrics".into(), source: ErrorKind::PermissionDenied.into() };
    insta::assert_snapshot!(error.to_string(), @"cannot write to `/etc/metrics`: permission denied; choose a file that this user can write");
}

#[tokio::test]
async fn lines_are_appended_and_continue_in_a_replaced_file() -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let (path, moved) = (folder.path().join("lines"), folder.path().join("moved"));
    // The last line of a sidecar that was killed.
    fs::write(&path, "{\"complete\":1}\n{\"incompl")?;
    let outputs = opened(&path).map_err(io::Error::other)?;
    let [file] = outputs.files().try_into().map_err(|_| ErrorKind::NotFound)?;
    let publish = || outputs.bus().publish(&std::sync::Arc::new(small()));
    let lines = |path: &std::path::Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    let written = async |path: &std::path::Path, count| {
        while lines(path) < count {
            tokio::task::yield_now().await;
        }
    };
    publish();
    written(&path, 3).await;
    assert!(fs::read_to_string(&path)?.starts_with("{\"complete\":1}\n{\"incompl\n{\"resourceMetrics\""));
    // logrotate's `copytruncate`.
    File::options().write(true).open(&path)?.set_len(0)?;
    publish();
    written(&path, 1).await;
    assert!(fs::read(&path)?.starts_with(b"{\"resourceMetrics\""), "no hole before the first line");
    fs::rename(&path, &moved)?;
    file.replace(crate::files::append_regular(&path)?)?;
    publish();
    written(&path, 1).await;
    assert_eq!(lines(&moved), 1);
    outputs.shutdown(Duration::from_secs(20)).await.map_err(io::Error::other)
}
