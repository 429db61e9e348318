//! An HTTP/1.1 server with one answer for each connection.

use std::{
    convert::Infallible,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
    time::Instant,
};

/// The limit of a connection, from its start to the last byte of the answer.
const LIMIT: Duration = Duration::from_secs(10);
/// The limit of the request's headers.
const HEADERS: Duration = Duration::from_secs(2);
/// Most bytes of a request's headers.
const SIZE: usize = 16 << 10;
/// Most headers of a request.
const NUMBER: usize = 64;
/// Most connections at a time. Others wait.
const CONNECTIONS: usize = 16;
/// The wait after a connection that could not be accepted, for example because the process has too many descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// The end of a connection: the points that the client has received, or the reason why it has received none.
pub(super) type Outcome = Result<u64, &'static str>;

/// An answer, with the outcome if the client receives it.
pub(super) struct Reply {
    pub(super) response: Response<Full<Bytes>>,
    pub(super) outcome: Outcome,
}

/// Answers requests.
pub(super) trait Respond: Clone + Send + Sync + 'static {
    /// Returns the answer to a request.
    fn respond(&self, request: &Request<Incoming>) -> Reply;

    /// Counts a connection that sent a request, or a part of one.
    fn ended(&self, outcome: Outcome, began: Instant);
}

/// Answers requests until the runtime ends.
pub(super) async fn run<S>(accept: impl AsyncFn() -> io::Result<S>, pages: impl Respond)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    // The semaphore is never closed.
    while let Ok(permit) = Arc::clone(&free).acquire_owned().await {
        match accept().await {
            Ok(stream) => {
                let pages = pages.clone();
                tokio::spawn(async move {
                    let began = Instant::now();
                    if let Some(outcome) = answer(stream, &pages).await {
                        pages.ended(outcome, began);
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!("cannot accept a connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Answers one request. Returns `None` if the client sent nothing.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, pages: &impl Respond) -> Option<Outcome> {
    let replied = Mutex::new(None);
    let last = || replied.lock().unwrap_or_else(PoisonError::into_inner).take();
    let service = service_fn(|request: Request<Incoming>| {
        let Reply { response, outcome } = pages.respond(&request);
        *replied.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let mut server = http1::Builder::new();
    server
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(SIZE)
        .max_headers(NUMBER);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(LIMIT, connection).await {
        Ok(Ok(())) => last(),
        Ok(Err(error)) => Some(Err(reason(&error))),
        Err(_) => Some(Err("timeout")),
    }
}

/// Returns the reason of a connection's end: the status of the answer that hyper gave, or the failure of the connection.
fn reason(error: &hyper::Error) -> &'static str {
    match error {
        error if error.is_timeout() => "timeout",
        error if error.is_parse_too_large() => "431",
        error if error.is_parse() => "400",
        _ => "connection_error",
    }
}
