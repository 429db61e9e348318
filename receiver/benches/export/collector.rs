//! A collector that accepts every request over gRPC and HTTP.

use std::convert::Infallible;

use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE, request::Parts};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use prost::bytes::Bytes;
use tokio::net::TcpListener;

/// The bytes before a message of gRPC: a flag and the length.
const FRAME: usize = 5;
/// The window of HTTP/2 in bytes: a request needs no update of it.
const WINDOW: u32 = 8 << 20;

/// Serves connections until the process ends. `observe` receives the head of each request, and the bytes of its message.
pub async fn serve<F>(listener: TcpListener, observe: F) -> anyhow::Result<()>
where
    F: Fn(&Parts, usize) + Clone + Send + Sync + 'static,
{
    loop {
        let (stream, _) = listener.accept().await?;
        let observe = observe.clone();
        tokio::spawn(async move {
            let mut server = Builder::new(TokioExecutor::new());
            server.http2().initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
            let accept = |request| accept(request, observe.clone());
            // The connection ends with its client.
            let _ = server.serve_connection(TokioIo::new(stream), service_fn(accept)).await;
        });
    }
}

/// Accepts a request without a rejected point.
async fn accept(
    request: Request<Incoming>,
    observe: impl Fn(&Parts, usize) + Send,
) -> Result<Response<BoxBody<Bytes, Infallible>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let is_grpc = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let length = body.collect().await?.to_bytes().len();
    observe(&head, if is_grpc { length - FRAME } else { length });
    let mut response = if is_grpc {
        let trailers = HeaderMap::from_iter([("grpc-status".parse().expect("a name"), HeaderValue::from_static("0"))]);
        let body = Full::new(Bytes::from_static(&[0; FRAME])).with_trailers(async { Some(Ok(trailers)) });
        Response::new(BoxBody::new(body))
    } else {
        Response::new(BoxBody::new(Full::new(Bytes::new())))
    };
    let kind = if is_grpc { "application/grpc" } else { "application/x-protobuf" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}
