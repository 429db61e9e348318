//! The API of Docker, which Podman also serves, on a Unix socket.

use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker as Client, errors::Error, models::ContainerInspectResponse};
use hyper::{
    Response,
    body::Incoming,
    client::conn::http1,
    header::{HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;

use super::{
    failure::{Failure, Reason},
    image::Image,
    pod,
    replay::Replay,
    runtimes::Runtimes,
};
use crate::{
    ContainerId, Metadata,
    causes::chain,
    reader::{Endpoint, Query},
};

/// The timeout that the client requires. The effective timeout is the caller's, which includes the body.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A client of one socket.
pub(super) struct Docker {
    client: Client,
}

impl Docker {
    /// Creates a client that connects for each call. Calls are rare, and a restarted engine leaves no stale connection.
    pub(super) fn new(endpoint: &Endpoint, runtimes: &Runtimes) -> Result<Self, Failure> {
        let (endpoint, runtimes) = (endpoint.clone(), runtimes.clone());
        let transport = move |request| exchange(endpoint.clone(), runtimes.clone(), request);
        let (address, timeout) = (Some("http://localhost"), TIMEOUT.as_secs());
        let client = Client::connect_with_custom_transport(transport, address, timeout, API_DEFAULT_VERSION)?;
        Ok(Self { client })
    }

    pub(super) async fn container(&self, id: &ContainerId) -> Result<Metadata, Failure> {
        let answer = self.client.inspect_container(&id.0, None).await?;
        match answer.id.as_deref() {
            Some(answered) if answered == id.0 => Ok(metadata(answer)),
            answered => Err(Failure::another(&id.0, answered.unwrap_or_default())),
        }
    }
}

/// Sends the query that a request means, and reads the reply as that of the request.
async fn exchange(
    endpoint: Endpoint,
    runtimes: Runtimes,
    mut request: BollardRequest,
) -> Result<Response<Incoming>, Error> {
    let id = request.uri().path().split('/').rev().nth(1).unwrap_or_default().to_owned();
    let reply = runtimes.exchange(&endpoint, Query::InspectContainer(id)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(Replay::new(reply))).await?;
    // The task ends with the request.
    tokio::spawn(connection);
    request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    Ok(sender.send_request(request).await?)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let reason = match &error {
            Error::DockerResponseServerError { status_code: 404, .. } => Reason::NotFound,
            Error::DockerResponseServerError { status_code: 401 | 403, .. } => Reason::Denied,
            Error::DockerResponseServerError { .. } => Reason::Refused,
            Error::IOError { err } => Reason::from(err),
            Error::HyperResponseError { err } if !err.is_parse() => Reason::Closed,
            Error::RequestTimeoutError => Reason::Timeout,
            _ => Reason::Malformed,
        };
        Self::new(reason, chain(&error))
    }
}

fn metadata(answer: ContainerInspectResponse) -> Metadata {
    let name = answer.name.map(|name| name.strip_prefix('/').map(str::to_owned).unwrap_or(name));
    let config = answer.config.unwrap_or_default();
    let image = Image::parse(&config.image.unwrap_or_default(), &answer.image.unwrap_or_default());
    let labels = config.labels.unwrap_or_default().into_iter().collect();
    Metadata {
        name: name.filter(|name| !name.is_empty()),
        image_name: image.name,
        image_tags: image.tags,
        pod: pod::from_labels(&labels),
        labels,
    }
}
