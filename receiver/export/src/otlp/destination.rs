//! The destination of requests, in messages about failures.

use super::{
    Items, Protocol, Settings,
    failure::{Failure, FailureKind, Refusal, Verdict},
};

/// The endpoint for one kind of telemetry.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    items: Items,
    /// The endpoint's URI, without a query, which may contain a secret.
    pub(super) endpoint: String,
    /// True if TLS is used because the endpoint has no scheme.
    assumes_tls: bool,
    protocol: Protocol,
}

impl Destination {
    pub(super) fn new(items: Items, settings: &Settings) -> Self {
        let Settings { assumes_tls, protocol, .. } = *settings;
        Self { items, endpoint: settings.shown_endpoint(), assumes_tls, protocol }
    }

    /// Returns a failure as a message for the log: the error, its consequence for the measurements, and the remedy.
    pub(super) fn describe(&self, failure: &Failure) -> String {
        let Failure { reason, cause, .. } = failure;
        let (items, endpoint) = (self.items, &self.endpoint);
        if let FailureKind::PartialSuccess(rejected) = failure.kind {
            return format!(
                "{endpoint} rejected {rejected} {} of a delivery, which are lost: {cause}",
                items.counted()
            );
        }
        let consequence = match (failure.verdict(), items) {
            (Verdict::Permanent, Items::Metrics) => "; this snapshot is not retried, the next one is sent",
            (_, Items::Metrics) => "; retrying with the newest snapshot, totals are not affected",
            (Verdict::Permanent, Items::Spans) => "; these spans are lost, metrics are not affected",
            (_, Items::Logs) => "; metrics are not affected",
            (_, Items::Spans) => "; retrying, metrics are not affected",
        };
        let remedy = self.remedy(failure);
        format!("cannot deliver {} to {endpoint} ({reason}: {cause}){consequence}{remedy}", items.as_str())
    }

    /// Returns a failure with its remedy, without the consequence for the measurements.
    pub(super) fn explain(&self, failure: &Failure) -> String {
        format!("{}: {}{}", failure.reason, failure.cause, self.remedy(failure))
    }

    fn remedy(&self, failure: &Failure) -> String {
        let remedy = match failure.kind {
            FailureKind::Connection => Some(self.connection()),
            FailureKind::Timeout => Some(TIMEOUT.to_owned()),
            FailureKind::Refused(Refusal::Credentials) => Some("Check OTEL_EXPORTER_OTLP_HEADERS".to_owned()),
            FailureKind::Refused(Refusal::NoReceiver) => Some(self.receiver()),
            FailureKind::Refused(Refusal::Protocol) => Some(self.wrong_port()),
            FailureKind::Refused(Refusal::Encoding) => Some(ENCODING.to_owned()),
            FailureKind::Refused(Refusal::Redirect) => Some(REDIRECT.to_owned()),
            FailureKind::TooLarge => Some(LIMITS.to_owned()),
            FailureKind::Retryable if failure.delay.is_some() => Some(LIMITS.to_owned()),
            FailureKind::Retryable
            | FailureKind::PartialSuccess(_)
            | FailureKind::Refused(Refusal::Content | Refusal::Other) => None,
        };
        remedy.map_or_else(String::new, |remedy| format!(". {remedy}"))
    }

    fn connection(&self) -> String {
        let (name, port) = (self.protocol.name(), self.protocol.port());
        let listening = format!(
            "Is a collector listening for {name} there (usually port {port}), and does plaintext or TLS match the scheme?"
        );
        let spans = if self.items == Items::Spans { OF_SPANS } else { "" };
        let assumed = if self.assumes_tls { ASSUMES_TLS } else { "" };
        listening + spans + assumed
    }

    fn wrong_port(&self) -> String {
        let (protocol, other) = (self.protocol, self.protocol.other());
        format!(
            "Is that port {} (usually {}), and not {} ({})?",
            protocol.name(),
            protocol.port(),
            other.name(),
            other.port()
        )
    }

    fn receiver(&self) -> String {
        let question = match self.items {
            Items::Metrics => "Does the collector there have a metrics pipeline with an OTLP receiver?",
            Items::Spans => {
                "Does the collector there have a traces pipeline with an OTLP receiver? \
                 OTEL_TRACES_EXPORTER=none disables spans"
            }
            Items::Logs => {
                "Does the collector there have a logs pipeline with an OTLP receiver? OTEL_LOGS_EXPORTER=none keeps logs on \
                 standard error"
            }
        };
        if !self.protocol.is_http() {
            return question.to_owned();
        }
        let end = if question.ends_with('?') { "" } else { "." };
        format!("{question}{end} {OF_PATHS}")
    }
}

const TIMEOUT: &str = "The collector is slow, or packets are lost on the way to it; OTEL_EXPORTER_OTLP_TIMEOUT sets the limit. \
                       The next attempts open new connections";
const LIMITS: &str = "The collector refuses the load or the size of messages; check its limits";
const ENCODING: &str =
    "The collector may accept the other encoding: `http/protobuf` or `http/json` in OTEL_EXPORTER_OTLP_PROTOCOL";
const REDIRECT: &str = "Redirects are not followed: write the address of the collector itself";
const OF_PATHS: &str = "The path of the signal is appended to OTEL_EXPORTER_OTLP_ENDPOINT and `otlp.endpoint`, but not to an \
                        endpoint of one signal";
const OF_SPANS: &str =
    " OTEL_EXPORTER_OTLP_TRACES_ENDPOINT sets the endpoint of spans, OTEL_TRACES_EXPORTER=none disables them.";
const ASSUMES_TLS: &str = " No scheme given, TLS assumed; write http:// for plaintext.";
