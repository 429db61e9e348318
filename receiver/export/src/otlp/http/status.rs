//! Classifies responses and failures by the OTLP specification.

use std::{
    error::Error,
    io,
    time::{Duration, SystemTime},
};

use http::{
    HeaderMap, Response, StatusCode,
    header::{CONTENT_TYPE, LOCATION, RETRY_AFTER},
};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error as ClientError;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::{Message as _, bytes::Bytes};
use serde::Deserialize;

use super::{
    TIMEOUT,
    body::{self, Content},
};
use crate::{
    causes::chain,
    otlp::{
        endpoint::without_query,
        failure::{Failure, FailureKind, Refusal},
        transport::Reply,
    },
};

/// The `error.type` of a connection that failed or ended.
const CONNECTION: &str = "connection_error";
/// The `error.type` of an answer that no OTLP receiver gives.
const INVALID: &str = "invalid_response";
/// The `error.type` of a status outside [`STATUSES`] (semantic conventions).
const OTHER: &str = "_OTHER";

/// The statuses with an `error.type` of their own. A server could otherwise cause hundreds of series.
const STATUSES: [&str; 28] = [
    "301", "302", "303", "307", "308", "400", "401", "403", "404", "405", "406", "407", "408", "409", "411", "413",
    "414", "415", "421", "422", "429", "431", "500", "501", "502", "503", "504", "505",
];

/// The media type of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Media {
    Protobuf,
    Json,
    Text,
    Html,
    Other,
}

/// Reads a response with its body. The body of a refusal may be missing.
pub(super) async fn read(response: Result<Response<Incoming>, ClientError>) -> Result<Response<Content>, Failure> {
    let (head, body) = response.map_err(|error| disconnected(&error))?.into_parts();
    let content = match body::read(body).await {
        Ok(content) => content,
        Err(_) if !head.status.is_success() => Content::Whole(Bytes::new()),
        Err(error) => return Err(disconnected(&*error)),
    };
    Ok(Response::from_parts(head, content))
}

/// Returns the reply of a response, or the failure of the request.
pub(super) fn outcome(response: &Response<Content>) -> Result<Reply, Failure> {
    let (status, headers, content) = (response.status(), response.headers(), response.body());
    let media = Media::from_headers(headers);
    match (content, media) {
        _ if !status.is_success() => Err(refused(status, headers, media, &message(media, content))),
        (Content::TooLong, _) => Err(no_receiver("the reply is longer than 64 KiB")),
        (_, Media::Html) => Err(no_receiver("the reply is a web page")),
        (Content::Whole(body), media) => Ok(accepted(media, body)),
    }
}

/// Returns the failure of a connection.
fn disconnected(error: &(dyn Error + 'static)) -> Failure {
    // The client's own error names the phase only.
    let error = error.source().filter(|_| error.is::<ClientError>()).unwrap_or(error);
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    if causes.clone().filter_map(|cause| cause.downcast_ref()).any(hyper::Error::is_parse) {
        return no_receiver(&chain(error));
    }
    let has_timed_out = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
    let (kind, reason) = if causes.any(|cause| cause.downcast_ref().is_some_and(has_timed_out)) {
        (FailureKind::Timeout, TIMEOUT)
    } else {
        (FailureKind::Connection, CONNECTION)
    };
    Failure::new(kind, reason, &chain(error))
}

/// Returns the failure of an answer that no OTLP receiver gives.
fn no_receiver(cause: &str) -> Failure {
    Failure::new(FailureKind::Refused(Refusal::Protocol), INVALID, cause)
}

/// Returns the failure of a request that the server refused.
fn refused(status: StatusCode, headers: &HeaderMap, media: Media, message: &str) -> Failure {
    let kind = match status.as_u16() {
        429 | 502..=504 => FailureKind::Retryable,
        400 if matches!(media, Media::Protobuf | Media::Json) => FailureKind::Refused(Refusal::Content),
        401 | 403 | 407 => FailureKind::Refused(Refusal::Credentials),
        404 | 405 | 501 => FailureKind::Refused(Refusal::NoReceiver),
        413 => FailureKind::TooLarge,
        415 => FailureKind::Refused(Refusal::Encoding),
        300..=399 => FailureKind::Refused(Refusal::Redirect),
        100..=199 | 505 => FailureKind::Refused(Refusal::Protocol),
        _ => FailureKind::Refused(Refusal::Other),
    };
    let name = status.canonical_reason().map_or_else(|| format!("status {}", status.as_u16()), str::to_owned);
    let target = if status.is_redirection() { target(headers) } else { None };
    let cause = match (target, message) {
        (Some(target), _) => format!("{name} to {target}"),
        (None, "") if media == Media::Html => format!("{name}, with a web page"),
        (None, "") => name,
        (None, message) => format!("{name}: {message}"),
    };
    let delay = if kind == FailureKind::Retryable { delay(headers, SystemTime::now()) } else { None };
    Failure { delay, ..Failure::new(kind, error_type(status), &cause) }
}

/// Returns the `error.type` of a status.
fn error_type(status: StatusCode) -> &'static str {
    STATUSES.into_iter().find(|known| *known == status.as_str()).unwrap_or(OTHER)
}

/// Returns the delay of `Retry-After`: a number of seconds, or a date. A delay that is over is no delay, so that a
/// server cannot cause attempts without a pause.
fn delay(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let delay = if is_number {
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        httpdate::parse_http_date(value).ok()?.duration_since(now).ok()?
    };
    (!delay.is_zero()).then_some(delay)
}

/// Returns the target of a redirect, without credentials and query.
fn target(headers: &HeaderMap) -> Option<String> {
    let location = String::from_utf8_lossy(headers.get(LOCATION)?.as_bytes()).into_owned();
    let location = without_query(&location);
    let Some((scheme, rest)) = location.split_once("//") else { return Some(location.to_owned()) };
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let host = authority.rsplit('@').next().unwrap_or_default();
    Some(format!("{scheme}//{host}{path}"))
}

/// Returns the reply of an accepted request. A reply that is unreadable contains no rejection.
fn accepted(media: Media, body: &[u8]) -> Reply {
    match media {
        Media::Protobuf => {
            // The replies of all signals have one encoding: a number of rejected items, and a message.
            let reply = ExportMetricsServiceResponse::decode(body).unwrap_or_default();
            let partial = reply.partial_success.unwrap_or_default();
            let rejected = u64::try_from(partial.rejected_data_points).unwrap_or(0);
            Reply { rejected, message: partial.error_message }
        }
        Media::Json => {
            let partial = serde_json::from_slice::<JsonReply>(body).unwrap_or_default().partial_success;
            let PartialSuccess { rejected, error_message } = partial.unwrap_or_default();
            Reply { rejected: rejected.map_or(0, Count::get), message: error_message.unwrap_or_default() }
        }
        Media::Text | Media::Html | Media::Other => Reply::default(),
    }
}

/// Returns the message in the body of a failure: a `google.rpc.Status`, or plain text of another server.
fn message(media: Media, content: &Content) -> String {
    let Content::Whole(body) = content else { return String::new() };
    match media {
        Media::Protobuf => tonic_types::Status::decode(&**body).map(|status| status.message).unwrap_or_default(),
        Media::Json => serde_json::from_slice::<JsonStatus>(body).unwrap_or_default().message.unwrap_or_default(),
        Media::Text => String::from_utf8_lossy(body).trim().to_owned(),
        Media::Html | Media::Other => String::new(),
    }
}

impl Media {
    fn from_headers(headers: &HeaderMap) -> Self {
        let Some(value) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return Self::Other };
        let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/x-protobuf" | "application/protobuf" => Self::Protobuf,
            "application/json" => Self::Json,
            "text/plain" => Self::Text,
            "text/html" => Self::Html,
            _ => Self::Other,
        }
    }
}

/// A `google.rpc.Status` in JSON.
#[derive(Default, Deserialize)]
struct JsonStatus {
    message: Option<String>,
}

/// The reply of any signal in JSON.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonReply {
    partial_success: Option<PartialSuccess>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartialSuccess {
    #[serde(rename = "rejectedDataPoints", alias = "rejectedSpans", alias = "rejectedLogRecords")]
    rejected: Option<Count>,
    error_message: Option<String>,
}

/// A 64-bit integer, which protobuf's JSON mapping writes as text or as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Count {
    Number(i64),
    Text(String),
}

impl Count {
    /// Returns the number; zero for a negative number or another text.
    fn get(self) -> u64 {
        match self {
            Self::Number(number) => u64::try_from(number).unwrap_or(0),
            Self::Text(text) => text.parse().unwrap_or(0),
        }
    }
}
