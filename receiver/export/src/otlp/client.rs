//! Clients of any protocol.

use prost::bytes::Bytes;
use tonic::transport::Channel;

use super::{
    Items, Settings, SettingsError,
    destination::Destination,
    failure::Failure,
    grpc::{Connector, Grpc},
    http::{Http, Pool},
    transport::{Reply, Transport},
};
use crate::encoding::Encoding;

/// A connection to a collector. Clones share it.
#[derive(Clone)]
pub(super) enum Connection {
    Grpc(Connector, Channel),
    Http(Pool),
}

impl Connection {
    /// Prepares a connection, which is opened on first use. Requires a tokio runtime.
    ///
    /// # Errors
    /// If the certificates and keys are no valid TLS configuration.
    pub(super) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        if settings.protocol.is_http() {
            return Pool::new(settings).map(Self::Http);
        }
        let connector = Connector::new(settings)?;
        let channel = connector.channel();
        Ok(Self::Grpc(connector, channel))
    }

    /// Returns a client for metrics, for spans or for logs.
    pub(super) fn client(&self, items: Items, settings: Settings) -> Client {
        match self {
            Self::Grpc(connector, channel) => {
                Client::Grpc(Grpc::new(items, settings, connector.clone(), channel.clone()))
            }
            Self::Http(pool) => Client::Http(Http::new(items, settings, pool.clone())),
        }
    }
}

/// A client for metrics, for spans or for logs.
pub(super) enum Client {
    Grpc(Grpc),
    Http(Http),
}

impl Transport for Client {
    fn destination(&self) -> &Destination {
        match self {
            Self::Grpc(client) => client.destination(),
            Self::Http(client) => client.destination(),
        }
    }

    fn encoding(&self) -> Encoding {
        match self {
            Self::Grpc(client) => client.encoding(),
            Self::Http(client) => client.encoding(),
        }
    }

    async fn send(&mut self, request: Bytes) -> Result<Reply, Failure> {
        match self {
            Self::Grpc(client) => client.send(request).await,
            Self::Http(client) => client.send(request).await,
        }
    }
}
