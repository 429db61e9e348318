//! Answers of servers and proxies that do not speak gRPC.

use std::{
    error::Error,
    task::{Context, Poll},
};

use http::{HeaderMap, Request, Response, StatusCode, header::CONTENT_TYPE};
use tonic::{
    Code, Status,
    body::Body,
    codegen::{BoxFuture, Service},
    transport::Channel,
};

/// A channel on which an answer without gRPC is a status. The library would decode the body of a web page as a message.
pub(super) struct Answers(pub(super) Channel);

impl Service<Request<Body>> for Answers {
    type Response = Response<Body>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            if is_grpc(answer.headers()) { Ok(answer) } else { Err(status(answer.status()).into()) }
        })
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Returns the status of gRPC for a status of HTTP (gRPC's http-grpc-status-mapping.md).
fn status(http: StatusCode) -> Status {
    let code = match http.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502..=504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    Status::new(code, format!("the server answers HTTP status {http}, without gRPC"))
}
