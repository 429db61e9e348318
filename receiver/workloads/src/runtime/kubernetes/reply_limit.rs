//! The limit of the API server's replies. The client decodes a whole list, and a whole line of a watch.

use std::{
    error::Error,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::{
    Request, Response,
    body::{Body, Bytes, Frame},
};
use kube::client;
use tower::{Layer, Service};

/// The longest list or line of a watch, in bytes. A page has 50 pods of some kilobytes each.
pub(super) const LONGEST: usize = 16 << 20;

/// Limits the replies of a service.
#[derive(Clone, Copy)]
pub(super) struct LimitReplies;

impl<S> Layer<S> for LimitReplies {
    type Service = LimitedReplies<S>;

    fn layer(&self, service: S) -> Self::Service {
        LimitedReplies(service)
    }
}

/// A service with limited replies.
pub(super) struct LimitedReplies<S>(S);

impl<S, B> Service<Request<client::Body>> for LimitedReplies<S>
where
    S: Service<Request<client::Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<Limited<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<client::Body>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let by_line = query.split('&').any(|parameter| parameter == "watch=true");
        let reply = self.0.call(request);
        Box::pin(async move { Ok(reply.await?.map(|body| Limited { body, length: Length { by_line, bytes: 0 } })) })
    }
}

/// A reply that fails beyond the limit.
pub(super) struct Limited<B> {
    body: B,
    length: Length,
}

/// The length of a reply, or of its last line.
struct Length {
    by_line: bool,
    bytes: usize,
}

impl Length {
    /// Adds the next bytes. Returns false beyond the limit.
    fn add(&mut self, bytes: &[u8]) -> bool {
        self.bytes = self.bytes.saturating_add(bytes.len());
        let is_within = self.bytes <= LONGEST;
        if self.by_line
            && let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n')
        {
            self.bytes = bytes.len() - end - 1;
        }
        is_within
    }
}

impl<B> Body for Limited<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        if frame.data_ref().is_some_and(|bytes| !self.length.add(bytes)) {
            let error = format!("the API server sent more than {LONGEST} bytes");
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::FileTooLarge, error).into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_limited_as_a_whole_and_a_watch_by_line() {
        let line = [vec![b'x'; LONGEST - 1], vec![b'\n']].concat();
        let admitted = |by_line, chunks: &[&[u8]]| {
            let mut length = Length { by_line, bytes: 0 };
            chunks.iter().map(|chunk| length.add(chunk)).collect::<Vec<_>>()
        };
        assert_eq!(admitted(true, &[&line, &line, &line[1..], b"y"]), [true; 4]);
        assert_eq!(admitted(false, &[&line, b"x"]), [true, false]);
        assert_eq!(admitted(true, &[b"a\nb", &line[1..]]), [true, true]);
        assert_eq!(admitted(true, &[b"a\nbc", &line[1..]]), [true, false]);
    }
}
