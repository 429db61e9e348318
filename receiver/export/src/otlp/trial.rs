//! A trial of an endpoint.

use super::{
    Items, Protocol, Settings, SettingsError,
    client::{Client, Connection},
    endpoint,
    failure::{Failure, FailureKind, Refusal},
    transport::Transport as _,
};

/// A trial of an endpoint with an empty request.
pub struct Trial {
    client: Client,
    protocol: Protocol,
    /// A client for the protocol that a server on a wrong port may expect.
    other: Client,
}

impl Trial {
    /// Prepares connections for a trial. Requires a tokio runtime.
    ///
    /// # Errors
    /// If the certificates and keys are no valid TLS configuration.
    pub fn new(items: Items, settings: Settings) -> Result<Self, SettingsError> {
        let (protocol, other) = (settings.protocol, other_protocol(items, &settings));
        let client = Connection::new(&settings)?.client(items, settings);
        Ok(Self { client, protocol, other: Connection::new(&other)?.client(items, other) })
    }

    /// Sends an empty request. If the answer is not that of an OTLP receiver, tries the other protocol.
    ///
    /// # Errors
    /// The problem and its remedy, if the endpoint accepts no requests of this kind.
    pub async fn run(mut self) -> Result<(), String> {
        let Err(failure) = self.client.send(self.client.encoding().empty()).await else { return Ok(()) };
        match failure.kind {
            // A collector may refuse an empty request as invalid, but then it accepts others.
            FailureKind::Refused(Refusal::Content) => Ok(()),
            FailureKind::Connection | FailureKind::Refused(Refusal::Protocol | Refusal::Other) => {
                let found =
                    self.try_other().await.map(|found| format!("{}: {}. {found}", failure.reason, failure.cause));
                Err(found.unwrap_or_else(|| self.client.destination().explain(&failure)))
            }
            _ => Err(self.client.destination().explain(&failure)),
        }
    }

    /// Returns a text about the server, if it answers in the other protocol.
    async fn try_other(&mut self) -> Option<String> {
        let answer = self.other.send(self.other.encoding().empty()).await;
        let (protocol, other) = (self.protocol, self.protocol.other());
        let (name, port) = (protocol.name(), protocol.port());
        if is_receiver(&answer.as_ref().err()) {
            let (answering, value) = (other.name(), other.as_str());
            return Some(format!(
                "The server there expects {answering}: set OTEL_EXPORTER_OTLP_PROTOCOL={value}, or use the port of {name} (usually {port})"
            ));
        }
        let is_status =
            matches!(answer, Err(Failure { kind: FailureKind::Refused(refusal), .. }) if refusal != Refusal::Protocol);
        let server = if other.is_http() { "An HTTP/1 server" } else { "A gRPC server" };
        is_status
            .then(|| format!("{server} without an OTLP receiver answers there; the port of {name} is usually {port}"))
    }
}

/// Returns true for the outcome of an OTLP receiver.
fn is_receiver(failure: &Option<&Failure>) -> bool {
    use FailureKind::{Refused, Retryable, TooLarge};
    let refused = |kind| matches!(kind, Refused(Refusal::Content | Refusal::Credentials) | Retryable | TooLarge);
    failure.is_none_or(|failure| refused(failure.kind))
}

/// Returns the settings for the other protocol at one address.
fn other_protocol(items: Items, settings: &Settings) -> Settings {
    let protocol = settings.protocol.other();
    let path = if protocol.is_http() { items.path() } else { "" };
    let endpoint = endpoint::append(&settings.endpoint, path).unwrap_or_else(|_| settings.endpoint.clone());
    Settings { protocol, endpoint, ..settings.clone() }
}
