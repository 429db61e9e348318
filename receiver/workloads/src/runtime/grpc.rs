//! gRPC on a Unix socket.

use hyper_util::rt::TokioIo;
use tonic::{Request, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;

use super::{failure::Failure, opener::Opener};
use crate::reader::Endpoint;

/// The authority of requests on a Unix socket, where no host has a name.
const HOST: &str = "http://localhost";

/// The largest reply that is read from a runtime, in bytes. A container's is a few kilobytes.
const REPLY: usize = 1 << 20;
/// The largest reply that is read from a user's socket. A decoded reply takes many times its size, and each user may send
/// the largest at any time.
const USER_REPLY: usize = 128 << 10;

/// The largest reply that is read from a socket, in bytes.
pub(super) fn reply_limit(endpoint: &Endpoint) -> usize {
    if endpoint.user().is_some() { USER_REPLY } else { REPLY }
}

/// A channel that connects on first use and again whenever the connection is lost.
#[derive(Clone)]
pub(super) struct Socket {
    client: Grpc<Channel>,
}

impl Socket {
    pub(super) fn new(endpoint: &Endpoint, opener: &Opener) -> Self {
        let (limit, endpoint, opener) = (reply_limit(endpoint), endpoint.clone(), opener.clone());
        let connector = tower::service_fn(move |_| {
            let (endpoint, opener) = (endpoint.clone(), opener.clone());
            async move { opener.connect(&endpoint).await.map(TokioIo::new) }
        });
        let channel = Channel::from_static(HOST).connect_with_connector_lazy(connector);
        Self { client: Grpc::new(channel).max_decoding_message_size(limit) }
    }

    /// Calls a method, such as `/runtime.v1.RuntimeService/ListContainers`.
    pub(super) async fn call<Q, A>(&self, method: &'static str, request: Request<Q>) -> Result<A, Failure>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut client = self.client.clone();
        client.ready().await.map_err(|error| tonic::Status::from_error(error.into()))?;
        let reply = client.unary(request, PathAndQuery::from_static(method), ProstCodec::default()).await?;
        Ok(reply.into_inner())
    }
}
