//! Connections to the collector: TCP or a Unix socket, with TLS for `https`.

use std::{
    error::Error,
    sync::Arc,
    task::{Context, Poll},
};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tonic::codegen::{BoxFuture, Service};

use super::{
    Settings,
    socket::{self, Resolver, Socket},
    tls::Tls,
};

type Failure = Box<dyn Error + Send + Sync>;

/// Connects to the endpoint of the settings. Clones share the certificates.
#[derive(Clone)]
pub(super) struct Dialer(Arc<Shared>);

struct Shared {
    settings: Settings,
    tcp: HttpConnector<Resolver>,
    /// `None` for plaintext.
    tls: Option<Tls>,
}

impl Dialer {
    /// Prepares connections, whose TLS handshake names the application protocol `alpn` (RFC 7301).
    ///
    /// # Errors
    /// If the certificates and keys are no valid TLS configuration.
    pub(super) fn new(settings: &Settings, alpn: &'static [u8]) -> Result<Self, String> {
        let is_secure = settings.endpoint.scheme_str() == Some("https");
        let tls = is_secure.then(|| Tls::new(settings, alpn)).transpose()?;
        let mut tcp = socket::connector(settings.timeout);
        tcp.set_connect_timeout(Some(settings.timeout));
        Ok(Self(Arc::new(Shared { settings: settings.clone(), tcp, tls })))
    }
}

impl Shared {
    async fn connect(&self) -> Result<Box<dyn Socket>, Failure> {
        let Settings { socket, access, endpoint, .. } = &self.settings;
        if let Some(path) = socket {
            return Ok(Box::new(access.connect(path.clone()).await?));
        }
        let stream = self.tcp.clone().call(endpoint.clone()).await?.into_inner();
        match &self.tls {
            Some(tls) => tls.connect(stream).await,
            None => Ok(Box::new(stream)),
        }
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<Box<dyn Socket>>;
    type Error = Failure;
    type Future = BoxFuture<Self::Response, Failure>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    /// Connects to the endpoint of the settings.
    fn call(&mut self, _: Uri) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.connect().await.map(TokioIo::new) })
    }
}
