//! An HTTP/1.1 server with one answer for each connection.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
};

use super::Health;

/// The limit of a connection.
const LIMIT: Duration = Duration::from_secs(5);
/// Most connections at a time. Others wait.
const CONNECTIONS: usize = 16;
/// The wait after a connection that could not be accepted, for example because the process has too many descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// Answers requests until the runtime ends.
pub(super) async fn run<S>(accept: impl AsyncFn() -> io::Result<S>, health: Health)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    // The semaphore is never closed.
    while let Ok(permit) = Arc::clone(&free).acquire_owned().await {
        match accept().await {
            Ok(stream) => {
                let health = health.clone();
                tokio::spawn(async move {
                    // The client closed the connection, sent no HTTP, or was too slow. None of these concerns the sidecar.
                    let _ = tokio::time::timeout(LIMIT, answer(stream, health)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!("cannot accept a health check: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, health: Health) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let (status, text) = match *request.method() {
            Method::GET | Method::HEAD => health.answer(request.uri().path()),
            _ => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        };
        let mut response = Response::new(text);
        *response.status_mut() = status;
        std::future::ready(Ok::<_, Infallible>(response))
    });
    http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service).await
}
