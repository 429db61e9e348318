//! Queries of Prometheus' HTTP API (`/api/v1/query`). The reply is foreign: its size, its time and its numbers are limited.

use std::{collections::BTreeMap, pin::pin, str::FromStr, time::Duration};

use http::{
    Method, Request, StatusCode, Uri,
    header::{ACCEPT, CONTENT_TYPE, HOST},
    uri::Scheme,
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::{net::TcpStream, time::timeout};

use crate::text;

/// The limit of a reply in bytes.
const LARGEST: usize = 8 << 20;
/// The most series of a reply.
const MOST: usize = 10_000;
/// The limit of a query.
const LIMIT: Duration = Duration::from_secs(30);
/// The characters of a foreign message that an error shows.
const SHOWN: usize = 200;

/// The address of Prometheus: `http://HOST:PORT`, optionally with a path before `/api`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    uri: Uri,
    host: String,
    port: u16,
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let problem = |what: &str| format!("`{url}` {what}: write http://HOST:PORT");
        let uri: Uri = url.parse().map_err(|_| problem("is no URL"))?;
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(problem("is no address of plain HTTP"));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| problem("has no host"))?.to_owned();
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) || uri.query().is_some() {
            return Err(problem("has more than a host, a port and a path"));
        }
        let port = uri.port_u16().unwrap_or(80);
        Ok(Self { uri, host, port })
    }
}

impl Endpoint {
    fn path(&self) -> String {
        format!("{}/api/v1/query", self.uri.path().trim_end_matches('/'))
    }

    /// Returns the address without the brackets of IPv6.
    fn address(&self) -> (&str, u16) {
        (self.host.trim_start_matches('[').trim_end_matches(']'), self.port)
    }
}

/// A query failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the graph from {endpoint}: {problem}")]
pub struct QueryError {
    endpoint: Uri,
    problem: String,
}

/// A number with labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The number, which may be infinite or NaN.
    pub value: f64,
}

/// Sends queries to Prometheus.
pub struct Client<'a>(&'a Endpoint);

impl<'a> Client<'a> {
    /// Returns a client, which connects for each query.
    pub const fn new(endpoint: &'a Endpoint) -> Self {
        Self(endpoint)
    }

    /// Returns the samples of an expression.
    ///
    /// # Errors
    /// If Prometheus does not reply in time, refuses the query, or its reply is no list of samples.
    pub async fn query(&self, expression: &str) -> Result<Vec<Sample>, QueryError> {
        let reply = timeout(LIMIT, self.send(expression)).await;
        let reply = reply.unwrap_or_else(|_| Err(format!("no reply within {} s", LIMIT.as_secs())));
        let samples = reply.and_then(|(status, body)| parse(status, &body));
        samples.map_err(|problem| QueryError { endpoint: self.0.uri.clone(), problem })
    }

    async fn send(&self, expression: &str) -> Result<(StatusCode, Bytes), String> {
        let stream = TcpStream::connect(self.0.address()).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let body = format!("query={}", utf8_percent_encode(expression, NON_ALPHANUMERIC));
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.0.path())
            .header(HOST, self.0.uri.authority().map_or("", |authority| authority.as_str()))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LARGEST).collect().await;
            Ok((status, body.map_err(|error| text::foreign(&error.to_string(), SHOWN))?.to_bytes()))
        };
        // The connection must be polled during the exchange. Its end, or its error, ends the exchange.
        let mut exchange = pin!(exchange);
        tokio::select! {
            biased;
            reply = &mut exchange => reply,
            _ = connection => exchange.await,
        }
    }
}

/// A reply.
#[derive(Deserialize)]
struct Reply {
    status: String,
    data: Option<Vector>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Vector {
    #[serde(rename = "resultType")]
    kind: String,
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

/// Returns the samples of a reply.
fn parse(status: StatusCode, body: &[u8]) -> Result<Vec<Sample>, String> {
    let reply: Reply = serde_json::from_slice(body).map_err(|error| {
        let error = text::foreign(&error.to_string(), SHOWN);
        format!("HTTP status {}, and no reply of Prometheus: {error}", status.as_u16())
    })?;
    let vector = match reply {
        Reply { status, data: Some(vector), .. } if status == "success" && vector.kind == "vector" => vector,
        Reply { error, .. } => return Err(text::foreign(&error.unwrap_or_else(|| "no vector".to_owned()), SHOWN)),
    };
    if vector.result.len() > MOST {
        return Err(format!("more than {MOST} edges"));
    }
    let sample = |series: Series| {
        let value = series.value.1.parse().map_err(|_| "a value is no number".to_owned())?;
        Ok(Sample { labels: series.metric, value })
    };
    vector.result.into_iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::variants::variants;

    const REPLY: &str = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"client":"a","server":"b"},"value":[1.5,"2.5"]}]}}"#;

    /// Serves one reply, and returns the request.
    async fn exchange(reply: String) -> (String, Result<Vec<Sample>, QueryError>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let serve = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = vec![0; 4096];
            let mut length = 0;
            while !String::from_utf8_lossy(&request[..length]).contains("query=") {
                length += stream.read(&mut request[length..]).await.expect("a request");
            }
            // The client may end before it has read a long reply.
            let _ = stream.write_all(reply.as_bytes()).await;
            String::from_utf8_lossy(&request[..length]).into_owned()
        };
        let endpoint: Endpoint = format!("http://127.0.0.1:{port}/prefix/").parse().expect("an endpoint");
        tokio::join!(serve, async { Client::new(&endpoint).query("sum(rate(x[5m]))").await })
    }

    fn http(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[tokio::test]
    async fn samples_have_labels_and_a_number() {
        let (request, samples) = exchange(http("200 OK", REPLY)).await;
        assert!(request.starts_with("POST /prefix/api/v1/query HTTP/1.1\r\n"), "{request}");
        assert!(request.ends_with("query=sum%28rate%28x%5B5m%5D%29%29"), "{request}");
        let samples = samples.expect("samples");
        assert_eq!(samples.len(), 1);
        assert_eq!((samples[0].labels["client"].as_str(), samples[0].value), ("a", 2.5));
    }

    #[tokio::test]
    async fn replies_without_samples_are_errors_with_a_safe_text() {
        let refused = r#"{"status":"error","errorType":"bad_data","error":"no\u001b[31m such thing"}"#;
        for (reply, problem) in [
            (http("400 Bad Request", refused), "no\\u{1b}[31m such thing"),
            (http("502 Bad Gateway", "<html>"), "HTTP status 502"),
            (http("200 OK", &REPLY.replace("2.5\"", "two\"")), "a value is no number"),
            (http("200 OK", &REPLY.replace("vector", "matrix")), "no vector"),
            ("nonsense\r\n\r\n".to_owned(), "invalid HTTP"),
            (
                format!("HTTP/1.1 200 OK\r\nContent-Length: {0}\r\n\r\n{1}", LARGEST + 1, " ".repeat(LARGEST + 1)),
                "length limit",
            ),
        ] {
            let error = exchange(reply).await.1.expect_err("refused").to_string();
            assert!(error.contains(problem), "{problem}: {error}");
        }
    }

    #[test]
    fn too_many_edges_are_refused() {
        let series = r#"{"metric":{},"value":[0,"1"]}"#;
        let list = vec![series; MOST + 1].join(",");
        let reply = format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{list}]}}}}"#);
        assert_eq!(parse(StatusCode::OK, reply.as_bytes()), Err(format!("more than {MOST} edges")));
    }

    #[test]
    fn addresses_are_those_of_plain_http() {
        let address = |url: &str| {
            url.parse::<Endpoint>().map(|endpoint| (endpoint.address().0.to_owned(), endpoint.port, endpoint.path()))
        };
        let query = "/api/v1/query".to_owned();
        assert_eq!(address("http://prometheus:9090"), Ok(("prometheus".to_owned(), 9090, query.clone())));
        assert_eq!(address("http://[::1]:9090/"), Ok(("::1".to_owned(), 9090, query)));
        for url in
            ["https://prometheus", "prometheus:9090", "/metrics", "http://", "http://user:secret@host", "http://a/?b=c"]
        {
            assert!(address(url).is_err(), "{url}");
        }
    }

    proptest! {
        #[test]
        fn every_reply_is_read_or_refused(reply in variants(&[REPLY, "{}", "null", r#"{"status":"error"}"#])) {
            let _ = parse(StatusCode::OK, reply.as_bytes());
        }
    }
}
