//! The endpoints that answer requests over HTTP: health checks, and pages with the newest snapshot.
//!
//! The first process opens their sockets with its privileges. The worker answers, without the right to open others.

mod listener;
mod pages;
mod server;
#[cfg(test)]
mod tests;
mod token;

use std::io;

use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::Instant;

pub use self::listener::ListenError;
use self::{
    listener::{Listener, Purpose},
    pages::Pages,
    server::{Outcome, Reply, Respond},
    token::Token,
};
use crate::{
    config::{Listen, Settings},
    export::prometheus::Newest,
    health::Health,
};

const CHECKS: Purpose = Purpose { text: "health checks", key: "health.listen" };
const READERS: Purpose = Purpose { text: "readers", key: "listen.address" };

/// The open endpoints, which do not answer yet.
#[derive(Default)]
pub struct Endpoints {
    health: Option<Listener>,
    pages: Option<(Listener, Option<Token>)>,
}

impl Endpoints {
    /// Opens the configured endpoints. The process still needs its privileges.
    ///
    /// # Errors
    /// If an address is in use, the kernel refuses, or the token cannot be read.
    pub fn open(settings: &Settings) -> Result<Self, ListenError> {
        let health = settings.health.listen.as_ref().map(|address| Listener::open(address, CHECKS)).transpose()?;
        let Listen { address, token_file } = &settings.listen;
        let Some(address) = address else { return Ok(Self { health, pages: None }) };
        let token = token_file.as_ref().map(|path| Token::read(path.as_path())).transpose()?;
        let listener = Listener::open_port(address.socket(), READERS)?;
        let bound = listener.port().unwrap_or(address.socket());
        tracing::info!("http://{bound}/ is a page for a browser, /metrics for Prometheus, /v1/snapshot has OTLP/JSON");
        if address.is_exposed() {
            tracing::warn!("readers send the token to {bound} without encryption: use a network that you trust");
        }
        Ok(Self { health, pages: Some((listener, token)) })
    }

    /// Answers requests in tasks of the current runtime. `newest` is `None` if nothing is measured.
    ///
    /// # Errors
    /// If tokio cannot watch a socket.
    pub fn serve(self, health: Health, newest: Option<Newest>) -> io::Result<()> {
        if let Some((listener, token)) = self.pages {
            listener.serve(Pages { newest, health: health.clone(), token })?;
        }
        self.health.map_or(Ok(()), |listener| listener.serve(health))
    }
}

impl Respond for Health {
    fn respond(&self, request: &Request<Incoming>) -> Reply {
        let (status, text) = match *request.method() {
            Method::GET | Method::HEAD => self
                .answer(request.uri().path())
                .unwrap_or_else(|| (StatusCode::NOT_FOUND, "the paths are /healthz and /readyz\n".to_owned())),
            _ => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        };
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        Reply { response, outcome: Ok(0) }
    }

    fn ended(&self, _: Outcome, _: Instant) {}
}
