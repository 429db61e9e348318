//! Errors in the settings of OTLP export.

use std::{io, path::PathBuf};

/// Errors in an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The endpoint is no valid URI.
    #[error("it is not a URL ({0}); write it like `http://collector:PORT`")]
    Syntax(#[source] http::uri::InvalidUri),
    /// The endpoint has no host.
    #[error("it has no host; write it like `http://collector:PORT`")]
    NoHost,
    /// The endpoint is a Unix socket without an absolute path.
    #[error("it is a Unix socket without an absolute path; write it like `unix:///run/collector.sock`")]
    Socket,
    /// The scheme is neither http nor https.
    #[error("its scheme is `{0}`; use `http` for plaintext or `https` for TLS")]
    Scheme(String),
    /// The port is no valid number.
    #[error("`{0}` is not a port; write a number from 0 to 65535")]
    Port(String),
    /// The endpoint has a user name or password, which would appear in logs.
    #[error("it contains credentials; put them into OTEL_EXPORTER_OTLP_HEADERS")]
    Credentials,
}

/// Errors in the settings of OTLP export.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The endpoint is invalid.
    #[error("endpoint `{value}` from {variable}: {source}")]
    Endpoint {
        /// The environment variable.
        variable: &'static str,
        /// The value of the variable.
        value: String,
        /// The reason.
        source: EndpointError,
    },
    /// A header is invalid. The error omits the header's value, which may be a secret.
    #[error("{variable}: header {position} (`{key}`) {problem}; write `key=value,key=value`, values percent-encoded")]
    Header {
        /// The environment variable.
        variable: &'static str,
        /// The position in the list, from 1.
        position: usize,
        /// The header's key, or the text before the first `=`.
        key: String,
        /// The reason.
        problem: &'static str,
    },
    /// A header of a configuration file is invalid. The error omits the header's value, which may be a secret.
    #[error("{origin}: `{key}` {problem}")]
    FileHeader {
        /// The key of the configuration file.
        origin: &'static str,
        /// The header's name.
        key: String,
        /// The reason.
        problem: &'static str,
    },
    /// A value is not among the supported ones.
    #[error("{variable} is `{value}`, which is not supported; supported: {supported}")]
    Unsupported {
        /// The environment variable.
        variable: &'static str,
        /// The value of the variable.
        value: String,
        /// The supported values.
        supported: &'static str,
    },
    /// The timeout is invalid.
    #[error("{variable} is `{value}`; write a whole number of milliseconds above zero, like `10000`")]
    Timeout {
        /// The environment variable.
        variable: &'static str,
        /// The value of the variable.
        value: String,
    },
    /// A certificate or key cannot be read.
    #[error("{variable}: cannot read `{}`: {source}; it must be a PEM file that this process may read", path.display())]
    File {
        /// The environment variable.
        variable: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file of the trusted authority has no certificate.
    #[error("{variable}: the file has no valid certificate; it must be a PEM file with `-----BEGIN CERTIFICATE-----`")]
    NoCertificate {
        /// The environment variable.
        variable: &'static str,
    },
    /// Either the client's certificate or its key is missing.
    #[error("{present} is set and {missing} is not; a client certificate needs both")]
    HalfIdentity {
        /// The variable that is set.
        present: &'static str,
        /// The variable that is missing.
        missing: &'static str,
    },
    /// The certificates and keys are no valid TLS configuration.
    #[error("endpoint `{endpoint}` needs TLS, which cannot be set up: {problem}; {cure}")]
    Tls {
        /// The endpoint.
        endpoint: String,
        /// The error of the TLS library.
        problem: String,
        /// The remedy.
        cure: &'static str,
    },
}
