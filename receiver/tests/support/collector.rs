//! A collector that records each request and answers it after a delay.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::{
            ExportLogsServiceRequest, ExportLogsServiceResponse,
            logs_service_server::{LogsService, LogsServiceServer},
        },
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    logs::v1::ResourceLogs,
    metrics::v1::{Metric, metric::Data},
};
use tonic::{
    Request, Response, Status,
    codec::CompressionEncoding,
    transport::{Server, server::TcpIncoming},
};

use super::{sidecar::wall_clock, span::Span};

/// An answered request.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// The time of the answer, nanoseconds of the wall clock.
    pub time: u64,
    pub points: usize,
    pub accepted: bool,
}

/// A collector on loopback, which serves until the process ends.
pub struct Collector {
    address: SocketAddr,
    deliveries: Arc<Mutex<Vec<Delivery>>>,
    spans: Spans,
    logs: Logs,
}

type Logs = Arc<Mutex<Vec<ResourceLogs>>>;
type Spans = Arc<Mutex<Vec<Span>>>;

impl Collector {
    /// Starts a collector that answers after a delay, and refuses every `refuses_one_in`-th request permanently.
    pub fn start(delay: Duration, refuses_one_in: usize) -> Self {
        Self::start_with(delay, refuses_one_in, false)
    }

    /// Starts a collector that also takes spans, or has no service for them.
    pub fn start_with(delay: Duration, refuses_one_in: usize, takes_spans: bool) -> Self {
        let deliveries = Arc::default();
        let (spans, logs) = (Spans::default(), Logs::default());
        let records = LogsServiceServer::new(Records(Arc::clone(&logs))).accept_compressed(CompressionEncoding::Gzip);
        let traces = takes_spans.then(|| TraceServiceServer::new(Traces(Arc::clone(&spans))));
        let service = Service { delay, refuses_one_in, deliveries: Arc::clone(&deliveries) };
        let service = MetricsServiceServer::new(service).accept_compressed(CompressionEncoding::Gzip);
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
                sender.send(incoming.local_addr().unwrap()).unwrap();
                Server::builder()
                    .add_service(service)
                    .add_service(records)
                    .add_optional_service(traces)
                    .serve_with_incoming(incoming)
                    .await
                    .unwrap();
            });
        });
        Self { address: receiver.recv().unwrap(), deliveries, spans, logs }
    }

    /// Returns the URL for the sidecar.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the answered requests.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.deliveries.lock().unwrap().clone()
    }

    /// Returns the accepted log records, by resource and request.
    pub fn logs(&self) -> Vec<ResourceLogs> {
        self.logs.lock().unwrap().clone()
    }

    /// Returns the accepted spans.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }
}

struct Records(Logs);

#[tonic::async_trait]
impl LogsService for Records {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.0.lock().unwrap().extend(request.into_inner().resource_logs);
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

struct Traces(Spans);

#[tonic::async_trait]
impl TraceService for Traces {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().unwrap().extend(Span::of_request(request.into_inner()));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

struct Service {
    delay: Duration,
    refuses_one_in: usize,
    deliveries: Arc<Mutex<Vec<Delivery>>>,
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let metrics = request.get_ref().resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
        let points = metrics.flat_map(|scope| &scope.metrics).map(points).sum();
        tokio::time::sleep(self.delay).await;
        let mut deliveries = self.deliveries.lock().unwrap();
        let accepted = !(deliveries.len() + 1).is_multiple_of(self.refuses_one_in);
        deliveries.push(Delivery { time: wall_clock(), points, accepted });
        if accepted {
            Ok(Response::new(ExportMetricsServiceResponse::default()))
        } else {
            Err(Status::invalid_argument("this one is refused"))
        }
    }
}

fn points(metric: &Metric) -> usize {
    match metric.data.as_ref().expect("a metric has data") {
        Data::Gauge(gauge) => gauge.data_points.len(),
        Data::Sum(sum) => sum.data_points.len(),
        Data::ExponentialHistogram(histogram) => histogram.data_points.len(),
        Data::Histogram(histogram) => histogram.data_points.len(),
        other => panic!("unexpected metric data: {other:?}"),
    }
}
