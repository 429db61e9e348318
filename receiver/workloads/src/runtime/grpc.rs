//! gRPC on a Unix socket.

use std::io;

use hyper_util::rt::TokioIo;
use tonic::{Request, Status, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;

use super::{failure::Failure, replay::Replay, runtimes::Runtimes};
use crate::reader::{Endpoint, Query};

/// The authority of requests on a Unix socket, where no host has a name.
const HOST: &str = "http://localhost";

/// The gRPC services of a socket. Each call has a connection.
pub(super) struct Socket {
    endpoint: Endpoint,
    runtimes: Runtimes,
}

impl Socket {
    pub(super) fn new(endpoint: &Endpoint, runtimes: &Runtimes) -> Self {
        Self { endpoint: endpoint.clone(), runtimes: runtimes.clone() }
    }

    /// Sends a query, and decodes the reply.
    pub(super) async fn call<A>(&self, query: Query) -> Result<A, Failure>
    where
        A: prost::Message + Default + 'static,
    {
        let reply = self.runtimes.exchange(&self.endpoint, query).await?;
        let mut reply = Some(Replay::new(reply));
        let connector = tower::service_fn(move |_| {
            // The client may try to connect again after a malformed reply.
            let replay = reply.take().map(TokioIo::new).ok_or(io::ErrorKind::ConnectionAborted);
            std::future::ready(replay.map_err(io::Error::from))
        });
        let channel = Channel::from_static(HOST).connect_with_connector_lazy(connector);
        let mut client = Grpc::new(channel).max_decoding_message_size(self.endpoint.reply_limit());
        client.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let method = PathAndQuery::from_static("/");
        let reply = client.unary(Request::new(()), method, ProstCodec::<(), A>::default()).await?;
        Ok(reply.into_inner())
    }
}
