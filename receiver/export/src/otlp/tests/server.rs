//! A collector that follows a script of responses and reports the received requests.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::metrics::v1::{
        ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
        metrics_service_server::{MetricsService, MetricsServiceServer},
    },
    metrics::v1::metric::Data,
};
use tokio::{io::DuplexStream, sync::mpsc};
use tonic::{
    Request, Response, Status,
    codec::CompressionEncoding,
    metadata::MetadataMap,
    transport::{Endpoint, Server},
};

use crate::otlp::grpc::Connector;

/// A scripted response.
pub(super) enum Answer {
    Accept,
    /// Accept all but this number of points.
    AcceptAllBut(i64),
    Refuse(Status),
    /// Never respond.
    Hang,
}

/// A received request.
pub(super) struct Received {
    metadata: MetadataMap,
    pub(super) points: u64,
    /// The time of the first point.
    pub(super) time: u64,
}

impl Received {
    pub(super) fn header(&self, key: &str) -> Option<String> {
        self.metadata.get(key).and_then(|value| value.to_str().ok()).map(str::to_owned)
    }
}

pub(super) struct Script {
    answers: Mutex<VecDeque<Answer>>,
    received: mpsc::UnboundedSender<Received>,
}

impl Script {
    /// Returns the service. It accepts gzip and zstd, and compresses responses if the client accepts zstd.
    pub(super) fn service(self) -> MetricsServiceServer<Self> {
        MetricsServiceServer::new(self)
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd)
            .send_compressed(CompressionEncoding::Zstd)
    }
}

#[tonic::async_trait]
impl MetricsService for Script {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let times: Vec<u64> = message
            .resource_metrics
            .iter()
            .flat_map(|resource| &resource.scope_metrics)
            .flat_map(|scope| &scope.metrics)
            .flat_map(|metric| match &metric.data {
                Some(Data::Sum(sum)) => sum.data_points.iter().map(|point| point.time_unix_nano).collect(),
                _ => Vec::new(),
            })
            .collect();
        let time = times.first().copied().unwrap_or_default();
        // The receiver is dropped when a test has ended.
        let _ = self.received.send(Received { metadata, points: times.len() as u64, time });
        let answer = self.answers.lock().expect("script").pop_front();
        let rejected = match answer {
            Some(Answer::Accept) => 0,
            Some(Answer::AcceptAllBut(rejected)) => rejected,
            Some(Answer::Refuse(status)) => return Err(status),
            Some(Answer::Hang) => std::future::pending().await,
            None => return Err(Status::failed_precondition("the script has no more answers")),
        };
        let error_message = "points too old".to_owned();
        let partial = ExportMetricsPartialSuccess { rejected_data_points: rejected, error_message };
        Ok(Response::new(ExportMetricsServiceResponse { partial_success: (rejected > 0).then_some(partial) }))
    }
}

/// Returns a scripted service and the channel of its received requests.
pub(super) fn script(answers: impl IntoIterator<Item = Answer>) -> (Script, mpsc::UnboundedReceiver<Received>) {
    let (received, receiver) = mpsc::unbounded_channel();
    (Script { answers: Mutex::new(answers.into_iter().collect()), received }, receiver)
}

/// A collector behind an in-memory connection.
pub(super) struct Collector {
    connections: mpsc::UnboundedSender<DuplexStream>,
    /// The number of connections.
    connected: Arc<AtomicUsize>,
    received: mpsc::UnboundedReceiver<Received>,
}

struct Connections(mpsc::UnboundedReceiver<DuplexStream>);

impl tonic::codegen::tokio_stream::Stream for Connections {
    type Item = std::io::Result<DuplexStream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|connection| connection.map(Ok))
    }
}

impl Collector {
    pub(super) fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let (script, received) = script(answers);
        let (connections, incoming) = mpsc::unbounded_channel();
        let server = Server::builder().add_service(script.service());
        tokio::spawn(server.serve_with_incoming(Connections(incoming)));
        Self { connections, connected: Arc::default(), received }
    }

    /// Returns a connector to the collector.
    pub(super) fn connector(&self) -> Connector {
        let (connections, connected) = (self.connections.clone(), Arc::clone(&self.connected));
        let connect = move || {
            let (connections, connected) = (connections.clone(), Arc::clone(&connected));
            tower::service_fn(move |_| {
                connected.fetch_add(1, Ordering::Relaxed);
                let (ours, theirs) = tokio::io::duplex(64 * 1024);
                let sent = connections.send(theirs);
                async move {
                    sent.map_err(|_| std::io::Error::from(std::io::ErrorKind::ConnectionRefused))?;
                    Ok::<_, std::io::Error>(TokioIo::new(ours))
                }
            })
        };
        let endpoint = Endpoint::from_static("http://collector.test:4317");
        Connector::by(move || endpoint.connect_with_connector_lazy(connect()))
    }

    /// Returns the number of connections so far.
    pub(super) fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    /// Waits for the next request.
    pub(super) async fn received(&mut self) -> Received {
        let received = tokio::time::timeout(Duration::from_secs(600), self.received.recv()).await;
        received.ok().flatten().expect("no further request came")
    }

    /// Returns the number of received requests that the test did not take.
    pub(super) fn left(&self) -> usize {
        self.received.len()
    }
}
