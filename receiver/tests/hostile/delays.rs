//! Collectors that request long delays.

use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
    metrics_service_server::{MetricsService, MetricsServiceServer},
};
use rustix::process::Signal;
use tonic::{
    Code, Request, Response, Status,
    codec::CompressionEncoding,
    transport::{Server, server::TcpIncoming},
};

use crate::support::{
    http2::{END_HEADERS, END_STREAM, HEADERS, frame, header, serve},
    line::Line,
    sidecar::Sidecar,
    status::Status as ProcessStatus,
    surroundings::{alone, often, patience, wait_for},
};

const TEN_YEARS: i64 = 10 * 365 * 24 * 3600;
/// Snapshots during a delay.
const SNAPSHOTS: usize = 15;
/// The memory that a delay may add to the worker, in kilobytes.
const GROWTH: u64 = 4 << 10;
/// The documented limit from SIGTERM to the end, with time to spare on a busy machine.
const SOON: Duration = Duration::from_secs(3);

/// A collector that refuses everything, requests a delay by `RetryInfo`, and attempts to forge a log line. It serves
/// until the process ends.
pub struct Throttling {
    pub endpoint: String,
    requests: Arc<AtomicU64>,
}

impl Throttling {
    /// Starts a collector that requests a delay of so many seconds.
    pub fn start(seconds: i64) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let incoming = runtime.block_on(async { TcpIncoming::bind(([127, 0, 0, 1], 0).into()) }).unwrap();
        let endpoint = format!("http://{}", incoming.local_addr().unwrap());
        let requests = Arc::<AtomicU64>::default();
        let service = Service { seconds, requests: Arc::clone(&requests) };
        let service = MetricsServiceServer::new(service).accept_compressed(CompressionEncoding::Gzip);
        let server = Server::builder().add_service(service).serve_with_incoming(incoming);
        thread::spawn(move || runtime.block_on(server));
        Self { endpoint, requests }
    }
}

struct Service {
    seconds: i64,
    requests: Arc<AtomicU64>,
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        _: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let field =
            |number: u8, content: &[u8]| [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat();
        let mut duration = vec![1 << 3];
        prost::encoding::encode_varint(self.seconds.cast_unsigned(), &mut duration);
        let any = [field(1, b"type.googleapis.com/google.rpc.RetryInfo"), field(2, &field(1, &duration))].concat();
        Err(Status::with_details(Code::Unavailable, "later\nERROR forged\r", field(3, &any).into()))
    }
}

/// The exporter to the collector.
const OTLP: (&str, &str) = ("otel.component.type", "otlp_grpc_metric_exporter");

/// Returns the number of points that were not delivered.
fn failed(line: &Line) -> f64 {
    line.total("otel.sdk.exporter.metric_data_point.exported", &[OTLP, ("error.type", "unavailable")])
}

/// Returns the number of snapshots that newer ones replaced.
fn replaced(line: &Line) -> f64 {
    line.total("undercurrent.lost", &[OTLP, ("undercurrent.reason", "snapshot_replaced")])
}

/// Starts a sidecar that exports metrics to this collector, and waits until the collector has refused a request.
fn refused_by(endpoint: &str, requests: &AtomicU64) -> Sidecar {
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint), ("OTEL_LOGS_EXPORTER", "none")];
    let sidecar = Sidecar::start_with(often(), &["--output", "otlp"], &variables);
    wait_for("a request", patience(Duration::from_secs(10)), || (requests.load(Ordering::Relaxed) > 0).then_some(()));
    sidecar
}

fn ends_soon(mut sidecar: Sidecar) {
    let (status, took) = sidecar.signal(Signal::TERM);
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(took <= patience(SOON), "{took:?}");
}

fn is_outlived(seconds: i64) {
    let Some(_alone) = alone(&format!("a delay of {seconds} s")) else { return };
    let collector = Throttling::start(seconds);
    let sidecar = refused_by(&collector.endpoint, &collector.requests);
    let memory = || ProcessStatus::of_process(sidecar.pid()).unwrap().number("RssAnon");
    let (first, before) = (sidecar.snapshot(), memory());
    let most = (0..SNAPSHOTS).map(|_| (sidecar.snapshot(), memory()).1).max().unwrap();
    let last = sidecar.lines().last().unwrap().clone();
    let later = sidecar.lines().iter().filter(|line| line.time > first.time).count();
    let lost = replaced(&last) - replaced(&first);
    eprintln!("{seconds} s: {lost} of {later} snapshots replaced, {before} kB before, {most} kB at most");
    // One snapshot waits. Every later one replaces the one before.
    // The delivery task may not have counted the last one yet.
    assert!((lost - later as f64).abs() <= 1.0, "{lost} of {later}");
    assert!(failed(&last) > failed(&first), "the points of replaced snapshots are counted");
    assert_eq!(collector.requests.load(Ordering::Relaxed), 1, "the delay is respected");
    assert!(most <= before + GROWTH, "{before} kB before, {most} kB at most");
    ends_soon(sidecar);
}

#[test]
fn a_delay_of_ten_years_is_outlived() {
    is_outlived(TEN_YEARS);
}

#[test]
fn the_longest_delay_is_outlived() {
    is_outlived(i64::MAX);
}

/// OTLP over gRPC has no `Retry-After`. A proxy may send it.
#[test]
fn retry_after_does_not_stop_retries() {
    let Some(_alone) = alone("Retry-After") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&requests);
    thread::spawn(move || {
        // The index of `:status` in the static table, and a literal value.
        let block = [b"\x08\x03503".to_vec(), header("retry-after", i64::MAX.to_string().as_bytes())].concat();
        for mut client in listener.incoming().map_while(Result::ok) {
            let _ = serve(&mut client, |stream| {
                counted.fetch_add(1, Ordering::Relaxed);
                Some(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block))
            });
        }
    });
    let sidecar = refused_by(&endpoint, &requests);
    wait_for("a retry", patience(Duration::from_secs(10)), || {
        (requests.load(Ordering::Relaxed) >= 2 && failed(&sidecar.snapshot()) > 0.0).then_some(())
    });
    ends_soon(sidecar);
}
