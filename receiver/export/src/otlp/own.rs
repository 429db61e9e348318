//! The sidecar's own logs, and at debug level its own traces, as OTLP.
//!
//! The SDK's batch processors deliver from threads of their own, so a slow or absent collector delays no tick. Records beyond the
//! limit of the queue are dropped and counted. The processors suppress the telemetry of their threads, so a failed delivery
//! causes no further record.

use std::{
    io,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use opentelemetry::{InstrumentationScope, trace::TracerProvider as _};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, Protocol as SdkProtocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    logs::{
        BatchConfigBuilder, BatchLogProcessor, LogBatch, LogExporter as Exporter, LogProcessor, SdkLogRecord,
        SdkLoggerProvider,
    },
    trace::SdkTracerProvider,
};
use tokio::runtime::Handle;
use tonic::{Code, Request, Status, metadata::MetadataMap, service::Interceptor};
use tracing_subscriber::{Layer, Registry};

use super::{
    Compression, Items, Protocol, Settings, SettingsError,
    client::Connection,
    destination::Destination,
    grpc::reason,
    http::{LastFailure, Sender},
};
use crate::{Statistics, telemetry::SCOPE};

/// The records that wait for their delivery.
const QUEUE: usize = 2048;
/// The records of a request.
const BATCH: usize = 512;
/// The longest time from a record to its request.
const DELAY: Duration = Duration::from_secs(1);
/// The reason of records that the full queue dropped, as in the SDK's own telemetry.
const QUEUE_FULL: &str = "queue_full";
/// The reason of a failure without a gRPC status (semantic conventions, `error.type`).
const OTHER: &str = "_OTHER";

/// Builds an exporter of the SDK on a connection.
macro_rules! exporter {
    ($builder:expr, $settings:expr, $connection:expr, $last:expr) => {{
        let (settings, last): (&Settings, &LastFailure) = ($settings, $last);
        let built = match ($connection, settings.protocol) {
            (Connection::Grpc(_, channel), _) => {
                let builder = $builder
                    .with_tonic()
                    .with_channel(channel)
                    .with_metadata(MetadataMap::from_headers(settings.headers.clone()))
                    .with_timeout(settings.timeout)
                    .with_interceptor(Limited(settings.timeout));
                match settings.compression {
                    Compression::Gzip => builder.with_compression(opentelemetry_otlp::Compression::Gzip),
                    Compression::Zstd => builder.with_compression(opentelemetry_otlp::Compression::Zstd),
                    Compression::None => builder,
                }
                .build()
            }
            (Connection::Http(pool), protocol) => $builder
                .with_http()
                .with_http_client(Sender::new(settings, pool, last.clone()))
                .with_endpoint(settings.endpoint.to_string())
                .with_protocol(sdk_protocol(protocol))
                .with_timeout(settings.timeout)
                .build(),
        };
        built.map_err(|error| invalid(settings, &error))?
    }};
}

const fn sdk_protocol(protocol: Protocol) -> SdkProtocol {
    match protocol {
        Protocol::Grpc => SdkProtocol::Grpc,
        Protocol::HttpProtobuf => SdkProtocol::HttpBinary,
        Protocol::HttpJson => SdkProtocol::HttpJson,
    }
}

fn invalid(settings: &Settings, error: &ExporterBuildError) -> SettingsError {
    SettingsError::Tls {
        endpoint: settings.shown_endpoint(),
        problem: error.to_string(),
        cure: "check the variables OTEL_EXPORTER_OTLP_*",
    }
}

/// A layer that exports the sidecar's own events or spans.
pub type OwnLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// An exporter of the sidecar's own telemetry that is not started.
pub struct OwnTelemetry {
    logs: LogCollector,
    spans: Option<SpanExporter>,
    statistics: Statistics,
}

/// The collector of the sidecar's own logs. Clones share it.
#[derive(Clone, Debug)]
pub struct LogCollector {
    target: Arc<RwLock<Arc<Target>>>,
    /// The runtime that runs the connections.
    runtime: Handle,
    statistics: Statistics,
}

/// An exporter of logs, with its destination.
#[derive(Clone, Debug)]
struct Target {
    exporter: Arc<LogExporter>,
    /// The resource of the logs, once it is set.
    resource: Option<Resource>,
    destination: Destination,
    last: LastFailure,
}

impl Target {
    fn new(logs: &Settings) -> Result<Self, SettingsError> {
        let last = LastFailure::default();
        let exporter = exporter!(LogExporter::builder(), logs, Connection::new(logs)?, &last);
        Ok(Self { exporter: exporter.into(), resource: None, destination: Destination::new(Items::Logs, logs), last })
    }

    /// Sets the resource of the logs. No delivery runs yet.
    fn set_resource(&mut self, resource: &Resource) {
        self.resource = Some(resource.clone());
        Arc::get_mut(&mut self.exporter).into_iter().for_each(|exporter| exporter.set_resource(resource));
    }
}

impl LogCollector {
    fn new(logs: &Settings, statistics: Statistics) -> Result<Self, SettingsError> {
        statistics.exporters(|exporters| exporters.logs = logs.protocol.exporters().logs);
        Ok(Self { target: Arc::new(RwLock::new(Target::new(logs)?.into())), runtime: Handle::current(), statistics })
    }

    /// Replaces the collector from the next batch of records on.
    ///
    /// # Errors
    /// If the certificates and keys are no valid TLS configuration. The present collector then stays.
    pub fn replace(&self, logs: &Settings) -> Result<(), SettingsError> {
        let _entered = self.runtime.enter();
        let mut target = Target::new(logs)?;
        self.current().resource.iter().for_each(|resource| target.set_resource(resource));
        *self.target.write().unwrap_or_else(PoisonError::into_inner) = target.into();
        self.statistics.exporters(|exporters| exporters.logs = logs.protocol.exporters().logs);
        Ok(())
    }

    fn current(&self) -> Arc<Target> {
        Arc::clone(&self.target.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Running processors of the sidecar's own telemetry.
pub struct RunningTelemetry {
    logs: SdkLoggerProvider,
    spans: Option<SdkTracerProvider>,
}

impl OwnTelemetry {
    /// Prepares the connection for logs, and for traces with their settings. Requires a tokio runtime.
    ///
    /// # Errors
    /// If the certificates and keys are no valid TLS configuration.
    pub fn new(logs: &Settings, spans: Option<&Settings>, statistics: Statistics) -> Result<Self, SettingsError> {
        let logs = LogCollector::new(logs, statistics.clone())?;
        let spans = spans.map(|settings| {
            let unused = LastFailure::default();
            Ok(exporter!(SpanExporter::builder(), settings, Connection::new(settings)?, &unused))
        });
        Ok(Self { logs, spans: spans.transpose()?, statistics })
    }

    /// Returns the handle of the collector of logs.
    #[must_use]
    pub fn collector(&self) -> LogCollector {
        self.logs.clone()
    }

    /// Starts the processors, each with a thread. Returns the layers for the log.
    ///
    /// # Errors
    /// If this process cannot start a thread.
    pub fn start(self, resource: &Resource) -> io::Result<(Vec<OwnLayer>, RunningTelemetry)> {
        // The SDK panics if it cannot start its thread.
        std::thread::Builder::new().spawn(|| ())?.join().map_err(|_| io::ErrorKind::Other)?;
        let pending = Arc::new(AtomicUsize::new(0));
        let exporter = Delivered {
            collector: self.logs,
            statistics: self.statistics.clone(),
            pending: Arc::clone(&pending),
            fails: AtomicBool::new(false),
        };
        let limits = BatchConfigBuilder::default();
        let limits = limits.with_max_queue_size(QUEUE).with_max_export_batch_size(BATCH).with_scheduled_delay(DELAY);
        let processor = BatchLogProcessor::builder(exporter).with_batch_config(limits.build()).build();
        let bounded = Bounded { inner: processor, statistics: self.statistics, pending };
        let logs = SdkLoggerProvider::builder().with_resource(resource.clone()).with_log_processor(bounded).build();
        let mut layers: Vec<OwnLayer> = vec![Box::new(OpenTelemetryTracingBridge::new(&logs))];
        let spans = self.spans.map(|exporter| {
            let provider =
                SdkTracerProvider::builder().with_resource(resource.clone()).with_batch_exporter(exporter).build();
            let layer = tracing_opentelemetry::layer::<Registry>().with_tracer(provider.tracer(SCOPE));
            layers.push(Box::new(layer));
            provider
        });
        Ok((layers, RunningTelemetry { logs, spans }))
    }
}

impl RunningTelemetry {
    /// Delivers the last records, within a time. Blocks.
    pub fn end(self, limit: Duration) {
        let ended = self.logs.shutdown_with_timeout(limit);
        let spans = self.spans.map_or(Ok(()), |spans| spans.shutdown_with_timeout(limit));
        if let Err(error) = ended.and(spans) {
            tracing::debug!("the last log records were not delivered: {error}");
        }
    }
}

/// Sets the limit of each call. The exporter limits only its retries (opentelemetry-otlp 0.33).
#[derive(Clone)]
struct Limited(Duration);

impl Interceptor for Limited {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.set_timeout(self.0);
        Ok(request)
    }
}

/// An exporter that counts the outcomes, and logs changes of its state.
#[derive(Debug)]
struct Delivered {
    collector: LogCollector,
    statistics: Statistics,
    pending: Arc<AtomicUsize>,
    fails: AtomicBool,
}

impl Target {
    /// Returns the `error.type` of a failure, and a text for the log.
    fn explain(&self, error: &OTelSdkError) -> (&'static str, String) {
        self.last.get().map_or_else(
            || (error_type(error), error.to_string()),
            |failure| (failure.reason, self.destination.explain(&failure)),
        )
    }
}

impl Exporter for Delivered {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let records = batch.iter().count();
        let target = self.collector.current();
        let result = target.exporter.export(batch).await;
        self.pending.fetch_sub(records, Ordering::AcqRel);
        let failed = self.fails.swap(result.is_err(), Ordering::AcqRel);
        let endpoint = &target.destination.endpoint;
        let failure = result.err().map(|error| target.explain(&error));
        match &failure {
            None if failed => tracing::info!("delivering logs to {endpoint} again"),
            None => {}
            Some((_, problem)) if failed => tracing::debug!("cannot deliver logs to {endpoint}: {problem}"),
            Some((_, problem)) => tracing::warn!(
                "cannot deliver logs to {endpoint}: {problem}; they are on standard error only. OTEL_LOGS_EXPORTER=none or `otlp.logs: \
                 false` disables their delivery"
            ),
        }
        self.statistics.logs(failure.map(|(reason, _)| reason), records as u64);
        // The failure is logged and counted. The processor would log it once more for each batch.
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.collector.current().exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        let mut target = self.collector.target.write().unwrap_or_else(PoisonError::into_inner);
        Arc::get_mut(&mut target).into_iter().for_each(|target| target.set_resource(resource));
    }
}

/// A processor that counts the records beyond its queue.
#[derive(Debug)]
struct Bounded {
    inner: BatchLogProcessor,
    statistics: Statistics,
    pending: Arc<AtomicUsize>,
}

impl LogProcessor for Bounded {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        if self.pending.fetch_add(1, Ordering::AcqRel) >= QUEUE {
            self.pending.fetch_sub(1, Ordering::AcqRel);
            self.statistics.logs(Some(QUEUE_FULL), 1);
            return;
        }
        self.inner.emit(record, scope);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// Returns the `error.type` of a failure. The exporter passes the gRPC status as text.
fn error_type(error: &OTelSdkError) -> &'static str {
    let text = error.to_string();
    let is_named = |code: &Code| text.contains(&format!("gRPC code: {code:?}"));
    let codes = (0..=16).map(Code::from_i32);
    codes.into_iter().find(is_named).map_or(OTHER, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_name_of_their_status() {
        let failure = |text: &str| error_type(&OTelSdkError::InternalFailure(text.to_owned()));
        assert_eq!(failure("TonicLogsClient export failed with gRPC code: Unavailable: refused"), "unavailable");
        assert_eq!(failure("TonicLogsClient export failed with gRPC code: Unimplemented"), "unimplemented");
        assert_eq!(failure("no status"), "_OTHER");
    }
}
