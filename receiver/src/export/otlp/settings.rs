//! Settings of OTLP export from the standard `OTEL_EXPORTER_OTLP_*` variables.

use std::{fmt, path::PathBuf, time::Duration};

use tonic::{codegen::http::Uri, metadata::MetadataMap};

use super::{SettingsError, endpoint, headers};
use crate::files::read_regular;

/// The limit of a certificate or key file in bytes: four times the size of a bundle of all public authorities.
const PEM_LIMIT: u64 = 1 << 20;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The variables of one setting: the one for metrics takes precedence over the general one. Obsolete variables are
/// ignored.
pub type Names = [&'static str; 2];

/// The endpoint.
pub const ENDPOINT: Names = ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// Plaintext for an endpoint without a scheme.
pub const INSECURE: Names = ["OTEL_EXPORTER_OTLP_METRICS_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE"];
/// The metadata of requests.
pub const HEADERS: Names = ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
/// The compression of requests.
pub const COMPRESSION: Names = ["OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
/// The limit of one request.
pub const TIMEOUT: Names = ["OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
/// The protocol.
pub const PROTOCOL: Names = ["OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
/// The trusted authority.
pub const CERTIFICATE: Names = ["OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
/// The client's certificate.
pub const CLIENT_CERTIFICATE: Names =
    ["OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"];
/// The client's key.
pub const CLIENT_KEY: Names = ["OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"];

/// The compression of requests. Compressed responses are always accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// gzip.
    Gzip,
}

/// Settings of the delivery.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The collector's URI, with the scheme `http` or `https`.
    pub endpoint: Uri,
    /// True if the endpoint was configured without a scheme, and TLS is used.
    pub assumes_tls: bool,
    /// Metadata of every request. The values are marked as sensitive.
    pub headers: MetadataMap,
    /// The compression of requests.
    pub compression: Compression,
    /// The limit of one attempt to send one request, including the connection.
    pub timeout: Duration,
    /// The trusted authority, instead of the system's root certificates.
    pub authority: Option<Pem>,
    /// The client's certificate and key, if the server requires them.
    pub identity: Option<ClientIdentity>,
}

/// The content of a PEM file. `Debug` hides it.
#[derive(Clone)]
pub struct Pem(pub Vec<u8>);

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pem(..)")
    }
}

/// The client's certificate and its private key.
#[derive(Clone, Debug)]
pub struct ClientIdentity {
    /// The certificate chain.
    pub certificate: Pem,
    /// The private key.
    pub key: Pem,
}

impl Settings {
    /// Reads the settings from variables. An empty value counts as unset, as the specification requires.
    ///
    /// An endpoint with `http://` selects plaintext and one with `https://` selects TLS, regardless of the
    /// insecure variable. An endpoint without a scheme selects TLS unless that variable is true. gRPC ignores the
    /// path of an endpoint. The headers for metrics replace the general headers.
    ///
    /// # Errors
    /// If a value is invalid, or a file cannot be read.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let variables = Variables(lookup);
        variables.protocol()?;
        let insecure = variables.get(INSECURE).is_some_and(|(_, value)| value.eq_ignore_ascii_case("true"));
        let (variable, value) = variables.get(ENDPOINT).unwrap_or(("the default", endpoint::DEFAULT.to_owned()));
        let endpoint = endpoint::parse(&value, insecure).map_err(|source| {
            // The text before an `@` may be a password.
            let value = value.rsplit('@').next().unwrap_or_default().to_owned();
            SettingsError::Endpoint { variable, value, source }
        })?;
        Ok(Self {
            endpoint,
            assumes_tls: !insecure && !endpoint::has_scheme(&value),
            headers: variables
                .get(HEADERS)
                .map_or_else(|| Ok(MetadataMap::new()), |(variable, list)| headers::parse(variable, &list))?,
            compression: variables.compression()?,
            timeout: variables.timeout()?,
            authority: variables.file(CERTIFICATE)?.map(|(_, pem)| pem),
            identity: variables.identity()?,
        })
    }

    /// Reads the settings from this process's environment with [`Self::from_variables`].
    ///
    /// # Errors
    /// If a value is invalid, or a file cannot be read.
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::from_variables(environment)
    }
}

/// Returns true if an endpoint is configured. OTLP is then the default output.
#[must_use]
pub fn endpoint_is_set(lookup: impl Fn(&str) -> Option<String>) -> bool {
    Variables(lookup).get(ENDPOINT).is_some()
}

/// Returns a variable of this process's environment. Invalid UTF-8 is replaced, and validation then refuses the
/// value.
#[must_use]
pub fn environment(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

struct Variables<F>(F);

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    fn get(&self, names: Names) -> Option<(&'static str, String)> {
        names.into_iter().find_map(|name| {
            let value = (self.0)(name)?;
            let value = value.trim();
            (!value.is_empty()).then(|| (name, value.to_owned()))
        })
    }

    fn protocol(&self) -> Result<(), SettingsError> {
        match self.get(PROTOCOL) {
            Some((variable, value)) if value != "grpc" => Err(SettingsError::Unsupported {
                variable,
                value,
                supported: "`grpc`, which collectors take on port 4317",
            }),
            _ => Ok(()),
        }
    }

    fn compression(&self) -> Result<Compression, SettingsError> {
        let Some((variable, value)) = self.get(COMPRESSION) else { return Ok(Compression::None) };
        match value.as_str() {
            "gzip" => Ok(Compression::Gzip),
            "none" => Ok(Compression::None),
            _ => Err(SettingsError::Unsupported { variable, value, supported: "`gzip` and `none`" }),
        }
    }

    fn timeout(&self) -> Result<Duration, SettingsError> {
        let Some((variable, value)) = self.get(TIMEOUT) else { return Ok(DEFAULT_TIMEOUT) };
        match value.parse() {
            Ok(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds)),
            _ => Err(SettingsError::Timeout { variable, value }),
        }
    }

    fn identity(&self) -> Result<Option<ClientIdentity>, SettingsError> {
        match (self.file(CLIENT_CERTIFICATE)?, self.file(CLIENT_KEY)?) {
            (Some((_, certificate)), Some((_, key))) => Ok(Some(ClientIdentity { certificate, key })),
            (None, None) => Ok(None),
            (Some((present, _)), None) => Err(SettingsError::HalfIdentity { present, missing: CLIENT_KEY[1] }),
            (None, Some((present, _))) => Err(SettingsError::HalfIdentity { present, missing: CLIENT_CERTIFICATE[1] }),
        }
    }

    fn file(&self, names: Names) -> Result<Option<(&'static str, Pem)>, SettingsError> {
        let Some((variable, path)) = self.get(names) else { return Ok(None) };
        let path = PathBuf::from(path);
        match read_regular(&path, PEM_LIMIT) {
            Ok(pem) => Ok(Some((variable, Pem(pem)))),
            Err(source) => Err(SettingsError::File { variable, path, source }),
        }
    }
}
