//! The pages for programs that read the newest snapshot.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{
        ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, VARY, WWW_AUTHENTICATE,
        X_CONTENT_TYPE_OPTIONS,
    },
    uri::Authority,
};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use tokio::time::Instant;

use super::{
    server::{Outcome, Reply, Respond},
    token::Token,
};
use crate::{
    export::prometheus::{Format, Newest, negotiate},
    health::Health,
};

const PLAIN: &str = "text/plain; charset=utf-8";
const PATHS: &str = "the paths are /, /metrics, /v1/snapshot, /v1/view, /healthz and /readyz\n";
/// The page for people. It polls `/v1/view`.
const PAGE: &str = include_str!("page.html");
/// The browser loads nothing but the page and the view of this host, and shows the page in no other page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Answers requests for the newest snapshot, and health checks.
#[derive(Clone)]
pub(super) struct Pages {
    /// `None` if nothing is measured.
    pub(super) newest: Option<Newest>,
    pub(super) health: Health,
    pub(super) token: Option<Token>,
}

impl Respond for Pages {
    fn respond(&self, request: &Request<Incoming>) -> Reply {
        let headers = request.headers();
        match &self.token {
            Some(token) if !token.is_in(headers) => {
                let mut reply = refusal(StatusCode::UNAUTHORIZED, "send the token: `Authorization: Bearer TOKEN`\n");
                reply.response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                return reply;
            }
            None if !is_local(headers) => {
                return refusal(StatusCode::FORBIDDEN, "the host in the request is neither an address nor localhost\n");
            }
            _ => {}
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "");
        }
        match request.uri().path() {
            "/" => page(),
            "/metrics" => self.snapshot(negotiate(&accepted(headers))),
            "/v1/snapshot" => self.snapshot(Format::Json),
            "/v1/view" => self.snapshot(Format::View),
            path => match self.health.answer(path) {
                Some((status, text)) => reply(status, PLAIN, text.into(), Ok(0)),
                None => refusal(StatusCode::NOT_FOUND, PATHS),
            },
        }
    }

    fn ended(&self, outcome: Outcome, began: Instant) {
        if let Some(newest) = self.newest.as_ref().filter(|_| outcome != Ok(0)) {
            newest.count(outcome, began.elapsed());
        }
    }
}

impl Pages {
    fn snapshot(&self, format: Format) -> Reply {
        let Some((body, points)) = self.newest.as_ref().and_then(|newest| newest.encoded(format)) else {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "there is no snapshot yet\n");
        };
        let mut reply = reply(StatusCode::OK, format.content_type(), body, Ok(points));
        reply.response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        reply
    }
}

fn page() -> Reply {
    let mut page = reply(StatusCode::OK, "text/html; charset=utf-8", Bytes::from_static(PAGE.as_bytes()), Ok(0));
    page.response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    page
}

/// Returns the value of all headers `Accept`.
fn accepted(headers: &HeaderMap) -> String {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

/// Returns true if the request names this host by an address or as `localhost`. A page of another site can reach the port from a browser on
/// this host, once its own name has the address of this host (DNS rebinding). Its requests then name that site.
fn is_local(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let authority = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    authority.is_some_and(|authority| {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
    })
}

fn refusal(status: StatusCode, text: &'static str) -> Reply {
    let reason = match status {
        StatusCode::UNAUTHORIZED => "401",
        StatusCode::FORBIDDEN => "403",
        StatusCode::NOT_FOUND => "404",
        StatusCode::METHOD_NOT_ALLOWED => "405",
        _ => "503",
    };
    reply(status, PLAIN, Bytes::from_static(text.as_bytes()), Err(reason))
}

fn reply(status: StatusCode, kind: &'static str, body: Bytes, outcome: Outcome) -> Reply {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    response.headers_mut().extend(headers.map(|(name, value)| (name, HeaderValue::from_static(value))));
    Reply { response, outcome }
}
