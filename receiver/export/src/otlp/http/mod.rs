//! OTLP over HTTP/1.1.

mod body;
mod connection;
mod own;
mod status;

use std::time::Duration;

use http::{
    HeaderMap, HeaderValue, Method, Request, Response,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT},
};
use http_body_util::Full;
use prost::bytes::Bytes;

use self::body::Content;
pub(super) use self::{
    connection::Pool,
    own::{LastFailure, Sender},
};
use super::{
    Items, Settings,
    destination::Destination,
    endpoint::without_zone,
    failure::{Failure, FailureKind},
    transport::{Reply, Transport},
};
use crate::encoding::Encoding;

/// A client for metrics, for spans or for logs.
pub(super) struct Http {
    destination: Destination,
    poster: Poster,
}

/// Sends bodies to one endpoint.
#[derive(Clone, Debug)]
struct Poster {
    settings: Settings,
    pool: Pool,
}

impl Http {
    /// Creates a client on a pool of connections.
    pub(super) fn new(items: Items, settings: Settings, pool: Pool) -> Self {
        Self { destination: Destination::new(items, &settings), poster: Poster { settings, pool } }
    }
}

impl Transport for Http {
    fn destination(&self) -> &Destination {
        &self.destination
    }

    fn encoding(&self) -> Encoding {
        self.poster.settings.protocol.encoding()
    }

    async fn send(&mut self, request: Bytes) -> Result<Reply, Failure> {
        status::outcome(&self.poster.exchange(request).await?)
    }
}

impl Poster {
    /// Posts a body, and reads the response. After a timeout or an error the connection is closed, and the next exchange
    /// uses another one.
    async fn exchange(&self, body: Bytes) -> Result<Response<Content>, Failure> {
        let timeout = self.settings.timeout;
        let exchange = async { status::read(self.pool.request(self.request(body)).await).await };
        tokio::time::timeout(timeout, exchange).await.unwrap_or_else(|_| Err(unanswered(timeout)))
    }

    fn request(&self, body: Bytes) -> Request<Full<Bytes>> {
        let (body, coding) = body::compress(body, self.settings.compression);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.settings.endpoint.clone();
        *request.headers_mut() = self.headers(coding);
        request
    }

    /// Returns the headers: those of the settings, and those that the protocol requires.
    fn headers(&self, coding: Option<HeaderValue>) -> HeaderMap {
        let Settings { headers, protocol, endpoint, .. } = &self.settings;
        let mut headers = headers.clone();
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(protocol.encoding().content_type()));
        headers.remove(CONTENT_ENCODING);
        coding.map(|coding| headers.insert(CONTENT_ENCODING, coding));
        // The client would take the host from the URI, with the zone of an IPv6 address.
        let host = without_zone(endpoint);
        if let Some(host) = host.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
            headers.entry(HOST).or_insert(host);
        }
        headers
    }
}

/// The name of this program in requests.
const AGENT: &str = concat!("undercurrent/", env!("CARGO_PKG_VERSION"));

/// The `error.type` of a request without an answer in time.
const TIMEOUT: &str = "timeout";

fn unanswered(timeout: Duration) -> Failure {
    Failure::new(FailureKind::Timeout, TIMEOUT, &format!("no answer within {} ms", timeout.as_millis()))
}
