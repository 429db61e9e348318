//! Sockets to the collector: the interface of all kinds, and TCP.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use hyper_util::client::legacy::connect::{
    Connected, Connection, HttpConnector,
    dns::{GaiResolver, Name},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::codegen::Service;

/// A connection of any kind.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

impl Connection for Box<dyn Socket> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Idle time before a keep-alive segment of TCP: shorter than common timeouts of firewalls and load balancers.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Returns the connector of TCP. A connection ends if the other end confirms nothing within the timeout of a request. TCP
/// alone repeats segments for a quarter of an hour.
pub(super) fn connector(timeout: Duration) -> HttpConnector<Resolver> {
    let mut tcp = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
    // The scheme `https` is handled above TCP.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    tcp.set_tcp_user_timeout(Some(timeout));
    tcp
}

/// Resolves host names and IPv6 addresses with a zone. A URI has the zone percent-encoded (RFC 6874), and
/// `getaddrinfo(3)` expects it decoded.
#[derive(Clone)]
pub(super) struct Resolver(GaiResolver);

impl Service<Name> for Resolver {
    type Response = <GaiResolver as Service<Name>>::Response;
    type Error = <GaiResolver as Service<Name>>::Error;
    type Future = <GaiResolver as Service<Name>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let decoded = name.as_str().replace("%25", "%").parse().unwrap_or(name);
        self.0.call(decoded)
    }
}
