//! What can be wrong with the settings of OTLP export.

use std::{io, path::PathBuf};

/// An endpoint that cannot be one.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// It does not parse.
    #[error("it is no URL ({0}); write it like `http://collector:4317`")]
    Syntax(#[source] tonic::codegen::http::uri::InvalidUri),
    /// It parses without a host.
    #[error("it names no host; write it like `http://collector:4317`")]
    NoHost,
    /// Neither http nor https.
    #[error("its scheme is `{0}`; use `http` for plaintext or `https` for TLS")]
    Scheme(String),
    /// A port that is none.
    #[error("`{0}` is no port; write a number from 0 to 65535, like `http://collector:4317`")]
    Port(String),
    /// A user name or password, which would show in every log.
    #[error("it has credentials in it; put them into OTEL_EXPORTER_OTLP_HEADERS")]
    Credentials,
}

/// A setting that OTLP export cannot work with.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The endpoint.
    #[error("endpoint `{value}` from {variable}: {source}")]
    Endpoint {
        /// Where it was set.
        variable: &'static str,
        /// As it was set.
        value: String,
        /// What is wrong with it.
        source: EndpointError,
    },
    /// A header. Its value is not shown, it may be a secret.
    #[error("{variable}: header {position} (`{key}`) {problem}; write `key=value,key=value`, values percent-encoded")]
    Header {
        /// Where it was set.
        variable: &'static str,
        /// Which of the list, from 1.
        position: usize,
        /// Its key, or what stands before the first `=`.
        key: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A value out of a few.
    #[error("{variable} is `{value}`, which is not supported; supported: {supported}")]
    Unsupported {
        /// Where it was set.
        variable: &'static str,
        /// As it was set.
        value: String,
        /// What is.
        supported: &'static str,
    },
    /// The timeout.
    #[error("{variable} is `{value}`; write a whole number of milliseconds above zero, like `10000`")]
    Timeout {
        /// Where it was set.
        variable: &'static str,
        /// As it was set.
        value: String,
    },
    /// A certificate or key that cannot be read.
    #[error("{variable}: cannot read `{}`: {source}; it must be a PEM file that this process may read", path.display())]
    File {
        /// Where it was set.
        variable: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// One half of a client's identity.
    #[error("{present} is set and {missing} is not; a client certificate needs both")]
    HalfIdentity {
        /// The half that is there.
        present: &'static str,
        /// The other.
        missing: &'static str,
    },
    /// Certificates and keys that make no TLS configuration.
    #[error("endpoint `{endpoint}` needs TLS, which cannot be set up: {problem}; {cure}")]
    Tls {
        /// Where to.
        endpoint: String,
        /// What the TLS library says.
        problem: String,
        /// What to do.
        cure: &'static str,
    },
}
