//! gRPC on a Unix socket.

use std::path::Path;

use tonic::{
    Request,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::failure::{Failure, Reason};

/// The largest reply that is read from a runtime, in bytes. A container's is a few kilobytes.
pub(super) const REPLY: usize = 1 << 20;

/// A channel that connects on first use and again whenever the connection is lost.
#[derive(Clone)]
pub(super) struct Socket {
    client: Grpc<Channel>,
}

impl Socket {
    pub(super) fn new(path: &Path) -> Result<Self, Failure> {
        let endpoint = Endpoint::from_shared(format!("unix:{}", path.display()))
            .map_err(|error| Failure::new(Reason::Gone, error))?;
        Ok(Self { client: Grpc::new(endpoint.connect_lazy()).max_decoding_message_size(REPLY) })
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
