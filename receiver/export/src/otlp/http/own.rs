//! The HTTP client of the SDK's exporters.

use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use prost::bytes::Bytes;
use tokio::runtime::Handle;

use super::{Pool, Poster, body::Content, status::outcome};
use crate::otlp::{Settings, failure::Failure};

/// Sends the requests of an exporter, with the address, the headers and the compression of the settings. The exporter runs in
/// a thread without a runtime, so connections run in the runtime that creates the sender.
#[derive(Debug)]
pub(in crate::otlp) struct Sender {
    poster: Poster,
    runtime: Handle,
    last: LastFailure,
}

/// The failure of the last request. The exporter reports a text without the cause.
#[derive(Clone, Debug, Default)]
pub(in crate::otlp) struct LastFailure(Arc<Mutex<Option<Failure>>>);

impl LastFailure {
    /// Returns the failure of the last request.
    pub(in crate::otlp) fn get(&self) -> Option<Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, failure: Option<Failure>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}

impl Sender {
    /// Creates a sender on a pool of connections. Requires a tokio runtime.
    pub(in crate::otlp) fn new(settings: &Settings, pool: Pool, last: LastFailure) -> Self {
        Self { poster: Poster { settings: settings.clone(), pool }, runtime: Handle::current(), last }
    }
}

#[tonic::async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let poster = self.poster.clone();
        let response = self.runtime.spawn(async move { poster.exchange(request.into_body()).await }).await?;
        let outcome = response.as_ref().map_or_else(|failure| Err(failure.clone()), outcome);
        self.last.set(outcome.err());
        let response = response.map_err(|failure| failure.cause)?;
        Ok(response.map(|content| match content {
            Content::Whole(body) => body,
            Content::TooLong => Bytes::new(),
        }))
    }
}
