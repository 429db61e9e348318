//! OTLP export's settings, by the standard `OTEL_EXPORTER_OTLP_*` variables.

use std::{fmt, path::PathBuf, time::Duration};

use tonic::{codegen::http::Uri, metadata::MetadataMap};

use super::{SettingsError, endpoint, headers};
use crate::files::read_regular;

/// The largest certificate or key file, in bytes. A bundle of all public authorities has a quarter of that.
const PEM_LIMIT: u64 = 1 << 20;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// One setting: the variable for metrics, and the general one, which it beats. The obsolete ones are not read.
type Names = [&'static str; 2];

const ENDPOINT: Names = ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const INSECURE: Names = ["OTEL_EXPORTER_OTLP_METRICS_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE"];
const HEADERS: Names = ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
const COMPRESSION: Names = ["OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
const TIMEOUT: Names = ["OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const PROTOCOL: Names = ["OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const CERTIFICATE: Names = ["OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
const CLIENT_CERTIFICATE: Names =
    ["OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"];
const CLIENT_KEY: Names = ["OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"];

/// How requests are compressed. Compressed answers are understood in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip.
    Gzip,
}

/// How and where to deliver.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to, with the scheme `http` or `https`.
    pub endpoint: Uri,
    /// Metadata of every request; the values are marked as secrets.
    pub headers: MetadataMap,
    /// Of requests.
    pub compression: Compression,
    /// Of one try to deliver one request, connecting included.
    pub timeout: Duration,
    /// Whom to trust instead of the system's roots.
    pub authority: Option<Pem>,
    /// Who to be, where the server asks.
    pub identity: Option<ClientIdentity>,
}

/// The content of a PEM file. `Debug` does not show it.
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
    /// The key.
    pub key: Pem,
}

impl Settings {
    /// Settings by variables, looked up by name. An empty value is none, as the specification has it.
    ///
    /// An endpoint with `http://` is plaintext and one with `https://` is TLS, whatever the insecure variable says; one
    /// without a scheme is TLS unless that variable is true. Paths of endpoints mean nothing to gRPC. A list of headers for
    /// metrics replaces the general one.
    ///
    /// # Errors
    /// If a value cannot be used, or a file cannot be read.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let variables = Variables(lookup);
        variables.protocol()?;
        let insecure = variables.get(INSECURE).is_some_and(|(_, value)| value.eq_ignore_ascii_case("true"));
        let (variable, value) = variables.get(ENDPOINT).unwrap_or(("the default", endpoint::DEFAULT.to_owned()));
        let endpoint = endpoint::parse(&value, insecure).map_err(|source| {
            // What stands before an `@` may be a password.
            let value = value.rsplit('@').next().unwrap_or_default().to_owned();
            SettingsError::Endpoint { variable, value, source }
        })?;
        Ok(Self {
            endpoint,
            headers: variables
                .get(HEADERS)
                .map_or_else(|| Ok(MetadataMap::new()), |(variable, list)| headers::parse(variable, &list))?,
            compression: variables.compression()?,
            timeout: variables.timeout()?,
            authority: variables.file(CERTIFICATE)?.map(|(_, pem)| pem),
            identity: variables.identity()?,
        })
    }

    /// [`Self::from_variables`] of this process's environment.
    ///
    /// # Errors
    /// The same.
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::from_variables(environment)
    }
}

/// Whether an endpoint is configured, so that OTLP is what the user wants without saying so.
#[must_use]
pub fn endpoint_is_set(lookup: impl Fn(&str) -> Option<String>) -> bool {
    Variables(lookup).get(ENDPOINT).is_some()
}

/// A variable of this process's environment; what is no UTF-8 in it is replaced, and then refused like any wrong value.
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
