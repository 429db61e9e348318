//! Settings of OTLP export from the standard `OTEL_EXPORTER_OTLP_*` variables.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use http::{HeaderMap, Uri, uri::Scheme};

use super::{
    Access, EndpointError, Form, Histograms, Protocol, SettingsError, Temporality, endpoint, headers,
    tls::{ClientIdentity, Pem},
};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The content of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Items {
    /// Metrics.
    Metrics,
    /// Spans.
    Spans,
    /// The sidecar's own logs.
    Logs,
}

impl Items {
    /// Returns the name in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Spans => "spans",
            Self::Logs => "logs",
        }
    }

    /// Returns the path of OTLP over HTTP.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/v1/metrics",
            Self::Spans => "/v1/traces",
            Self::Logs => "/v1/logs",
        }
    }

    /// Returns the name of the counted items in messages.
    pub(super) const fn counted(self) -> &'static str {
        match self {
            Self::Metrics => "points",
            Self::Spans => "spans",
            Self::Logs => "log records",
        }
    }
}

/// A variable and its text.
pub type Configured = (&'static str, String);

/// The settings of a configuration file. Variables take precedence.
#[derive(Clone, Debug, Default)]
pub struct FileSettings {
    /// The protocol.
    pub protocol: Option<Protocol>,
    /// The endpoint.
    pub endpoint: Option<String>,
    /// The headers of requests.
    pub headers: BTreeMap<String, String>,
    /// The compression of requests.
    pub compression: Option<Compression>,
    /// The limit of one request.
    pub timeout: Option<Duration>,
}

/// The keys of the configuration file, for messages.
pub const ENDPOINT_KEY: &str = "`otlp.endpoint`";
const HEADERS_KEY: &str = "`otlp.headers`";

/// The variables of one setting: for metrics, for traces, for logs, and for all. The variable of a signal takes precedence over the
/// general one. Obsolete variables are ignored.
pub type Names = [&'static str; 4];
/// The index of the variable for all signals.
const GENERAL: usize = 3;

/// Returns the variables of a setting.
macro_rules! names {
    ($setting:literal) => {
        [
            concat!("OTEL_EXPORTER_OTLP_METRICS_", $setting),
            concat!("OTEL_EXPORTER_OTLP_TRACES_", $setting),
            concat!("OTEL_EXPORTER_OTLP_LOGS_", $setting),
            concat!("OTEL_EXPORTER_OTLP_", $setting),
        ]
    };
}

/// The endpoint.
pub const ENDPOINT: Names = names!("ENDPOINT");
/// Plaintext for an endpoint without a scheme.
pub const INSECURE: Names = names!("INSECURE");
/// The headers of requests.
pub const HEADERS: Names = names!("HEADERS");
/// The compression of requests.
pub const COMPRESSION: Names = names!("COMPRESSION");
/// The limit of one request.
pub const TIMEOUT: Names = names!("TIMEOUT");
/// The protocol.
pub const PROTOCOL: Names = names!("PROTOCOL");
/// The trusted authority.
pub const CERTIFICATE: Names = names!("CERTIFICATE");
/// The client's certificate.
pub const CLIENT_CERTIFICATE: Names = names!("CLIENT_CERTIFICATE");
/// The client's key.
pub const CLIENT_KEY: Names = names!("CLIENT_KEY");

/// The temporality of metrics.
pub const TEMPORALITY: &str = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
/// The kind of histograms.
pub const HISTOGRAMS: &str = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION";

/// The compression of requests. Compressed responses are always accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

/// The remedy for a failure without a configured authority.
const WITHOUT_AUTHORITY: &str = if cfg!(feature = "tls") {
    "install the system's CA certificates, or set OTEL_EXPORTER_OTLP_CERTIFICATE to the collector's"
} else {
    "use a plaintext `http://` endpoint, or a build with the feature"
};

/// Settings of the delivery.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The protocol.
    pub protocol: Protocol,
    /// The collector's URI, with the scheme `http` or `https`. For OTLP over HTTP, it has the path of the signal.
    pub endpoint: Uri,
    /// The path of the collector's Unix socket. The host of the endpoint is then without meaning.
    pub socket: Option<PathBuf>,
    /// The variable or key with the endpoint; `None` for the default.
    pub origin: Option<&'static str>,
    /// True if the endpoint was configured without a scheme, and TLS is used.
    pub assumes_tls: bool,
    /// Headers of every request. The values are marked as sensitive.
    pub headers: HeaderMap,
    /// The compression of requests.
    pub compression: Compression,
    /// The limit of one attempt to send one request, including the connection.
    pub timeout: Duration,
    /// The trusted authority, instead of the system's root certificates.
    pub authority: Option<Pem>,
    /// The form of metrics.
    pub form: Form,
    /// The client's certificate and key, if the server requires them.
    pub identity: Option<ClientIdentity>,
    /// Opens the socket, and the certificates and keys again.
    pub access: Access,
}

impl Settings {
    /// Reads the settings for metrics, spans or logs from variables, and from a configuration file where no variable is set. An
    /// empty variable counts as unset, as the specification requires.
    ///
    /// An endpoint with `http://` selects plaintext and one with `https://` selects TLS, regardless of the
    /// insecure variable. An endpoint without a scheme selects TLS unless that variable is true. gRPC ignores the
    /// path of an endpoint. For HTTP, the path of the signal is appended to an endpoint for all signals, and to each Unix
    /// socket. The headers of a signal replace the general headers.
    ///
    /// # Errors
    /// If a value is invalid, or a file cannot be read.
    pub fn from_variables(
        items: Items,
        lookup: impl Fn(&'static str) -> Option<Configured>,
        file: &FileSettings,
    ) -> Result<Self, SettingsError> {
        let variables = Variables { items, lookup };
        let protocol = variables.protocol()?.or(file.protocol).unwrap_or_default();
        let insecure = variables.get(INSECURE).is_some_and(|(_, value)| value.eq_ignore_ascii_case("true"));
        let of_file = || file.endpoint.clone().map(|endpoint| (ENDPOINT_KEY, endpoint));
        let (origin, value) = variables.get(ENDPOINT).or_else(of_file).unzip();
        let value = value.unwrap_or_else(|| endpoint::default_for(protocol));
        let of_one_signal = origin.is_some_and(|origin| ENDPOINT[..GENERAL].contains(&origin));
        let socket = endpoint::socket(&value);
        let appends = protocol.is_http() && (!of_one_signal || socket.is_some());
        let endpoint = endpoint_of(&value, insecure, appends.then(|| items.path()));
        let endpoint = endpoint.map_err(|source| {
            // The text before an `@` may be a password, and a query may contain a token.
            let value = endpoint::without_query(value.rsplit('@').next().unwrap_or_default()).to_owned();
            SettingsError::Endpoint { variable: origin.unwrap_or_default(), value, source }
        })?;
        Ok(Self {
            protocol,
            endpoint,
            origin,
            assumes_tls: !insecure && socket.is_none() && !endpoint::has_scheme(&value),
            socket,
            headers: match variables.get(HEADERS) {
                Some((variable, list)) => headers::parse(variable, &list, protocol)?,
                None => headers::of_file(HEADERS_KEY, &file.headers, protocol)?,
            },
            compression: variables.compression()?.or(file.compression).unwrap_or_default(),
            timeout: variables.timeout()?.or(file.timeout).unwrap_or(DEFAULT_TIMEOUT),
            authority: variables.authority()?,
            form: variables.form()?,
            identity: variables.identity()?,
            access: Access::default(),
        })
    }

    /// Reads the settings again, with another configuration file. Certificates and keys stay: variables alone name them, and new
    /// connections read their files again.
    ///
    /// # Errors
    /// If a value is invalid.
    pub fn with_file(
        &self,
        items: Items,
        lookup: impl Fn(&'static str) -> Option<Configured>,
        file: &FileSettings,
    ) -> Result<Self, SettingsError> {
        let is_file = |name: &str| [CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY].concat().contains(&name);
        let lookup = |name: &'static str| if is_file(name) { None } else { lookup(name) };
        let (authority, identity) = (self.authority.clone(), self.identity.clone());
        Ok(Self { authority, identity, access: self.access.clone(), ..Self::from_variables(items, lookup, file)? })
    }

    /// Returns the endpoint for messages. A query may contain a secret, and is left out.
    #[must_use]
    pub fn shown_endpoint(&self) -> String {
        match &self.socket {
            Some(path) => format!("unix://{}", path.display()),
            None => endpoint::without_query(&self.endpoint.to_string()).to_owned(),
        }
    }

    /// Returns the paths that the delivery opens again: certificates, keys and the collector's socket.
    pub fn places(&self) -> impl Iterator<Item = &PathBuf> {
        let identity = self.identity.iter().flat_map(|identity| [&identity.certificate.path, &identity.key.path]);
        self.authority.iter().map(|pem| &pem.path).chain(identity).chain(&self.socket)
    }

    /// Returns true if headers of the configuration go to another host without encryption.
    #[must_use]
    pub fn exposes_headers(&self) -> bool {
        let host = self.endpoint.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let is_plain = self.endpoint.scheme() == Some(&Scheme::HTTP);
        !self.headers.is_empty() && is_plain && self.socket.is_none() && !is_here
    }

    /// Returns the TCP port of the endpoint; `None` for a Unix socket.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        let usual = if self.endpoint.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
        self.socket.is_none().then(|| self.endpoint.port_u16().unwrap_or(usual))
    }

    /// Returns the error of certificates or keys that the TLS library refused.
    pub(super) fn tls_error(&self, problem: String) -> SettingsError {
        let cure = if self.authority.is_none() {
            WITHOUT_AUTHORITY
        } else {
            "check that the files of OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY are PEM"
        };
        SettingsError::Tls { endpoint: self.shown_endpoint(), problem, cure }
    }

    /// Returns true if both settings are served by one connection.
    pub(super) fn connects_like(&self, other: &Self) -> bool {
        self.protocol.is_http() == other.protocol.is_http()
            && self.endpoint.scheme() == other.endpoint.scheme()
            && self.endpoint.authority() == other.endpoint.authority()
            && self.socket == other.socket
            && self.timeout == other.timeout
            && self.authority == other.authority
            && self.identity == other.identity
    }
}

/// Returns the URI of an endpoint with the path of a signal.
fn endpoint_of(value: &str, insecure: bool, path: Option<&str>) -> Result<Uri, EndpointError> {
    let base = endpoint::parse(value, insecure)?;
    path.map_or(Ok(base.clone()), |path| endpoint::append(&base, path))
}

/// Returns true if an endpoint for metrics is configured. OTLP is then the default output.
#[must_use]
pub fn endpoint_is_set(lookup: impl Fn(&str) -> Option<String>) -> bool {
    let lookup = |name: &'static str| lookup(name).map(|text| (name, text));
    Variables { items: Items::Metrics, lookup }.get(ENDPOINT).is_some()
}

struct Variables<F> {
    items: Items,
    lookup: F,
}

impl<F: Fn(&'static str) -> Option<Configured>> Variables<F> {
    fn get(&self, [metrics, traces, logs, general]: Names) -> Option<Configured> {
        let own = match self.items {
            Items::Metrics => metrics,
            Items::Spans => traces,
            Items::Logs => logs,
        };
        [own, general].into_iter().find_map(|name| {
            let (origin, value) = (self.lookup)(name)?;
            let value = value.trim();
            (!value.is_empty()).then(|| (origin, value.to_owned()))
        })
    }

    fn protocol(&self) -> Result<Option<Protocol>, SettingsError> {
        let Some((variable, value)) = self.get(PROTOCOL) else { return Ok(None) };
        let supported = "`grpc`, `http/protobuf` and `http/json`";
        match Protocol::from_value(&value) {
            Some(protocol) => Ok(Some(protocol)),
            None => Err(SettingsError::Unsupported { variable, value, supported }),
        }
    }

    fn compression(&self) -> Result<Option<Compression>, SettingsError> {
        let Some((variable, value)) = self.get(COMPRESSION) else { return Ok(None) };
        match value.as_str() {
            "gzip" => Ok(Some(Compression::Gzip)),
            "zstd" => Ok(Some(Compression::Zstd)),
            "none" => Ok(Some(Compression::None)),
            _ => Err(SettingsError::Unsupported { variable, value, supported: "`gzip`, `zstd` and `none`" }),
        }
    }

    /// Returns the setting of a variable with these values, in any case.
    fn choice<T: Copy + Default>(
        &self,
        variable: &'static str,
        values: &[(&str, T)],
        supported: &'static str,
    ) -> Result<T, SettingsError> {
        let value = (self.lookup)(variable).map_or_else(String::new, |(_, value)| value.trim().to_owned());
        let chosen = values.iter().find(|(name, _)| name.eq_ignore_ascii_case(&value)).map(|(_, setting)| *setting);
        let default = value.is_empty().then(T::default);
        chosen.or(default).ok_or(SettingsError::Unsupported { variable, value, supported })
    }

    fn form(&self) -> Result<Form, SettingsError> {
        use Temporality::{Cumulative, Delta, LowMemory};
        let temporalities = [("cumulative", Cumulative), ("delta", Delta), ("lowmemory", LowMemory)];
        let histograms = [
            ("base2_exponential_bucket_histogram", Histograms::Exponential),
            ("explicit_bucket_histogram", Histograms::Explicit),
        ];
        let supported = "`base2_exponential_bucket_histogram` and `explicit_bucket_histogram`";
        Ok(Form {
            temporality: self.choice(TEMPORALITY, &temporalities, "`cumulative`, `delta` and `lowmemory`")?,
            histograms: self.choice(HISTOGRAMS, &histograms, supported)?,
        })
    }

    fn timeout(&self) -> Result<Option<Duration>, SettingsError> {
        let Some((variable, value)) = self.get(TIMEOUT) else { return Ok(None) };
        match value.parse() {
            Ok(milliseconds) if milliseconds > 0 => Ok(Some(Duration::from_millis(milliseconds))),
            _ => Err(SettingsError::Timeout { variable, value }),
        }
    }

    fn identity(&self) -> Result<Option<ClientIdentity>, SettingsError> {
        match (self.file(CLIENT_CERTIFICATE)?, self.file(CLIENT_KEY)?) {
            (Some((_, certificate)), Some((_, key))) => Ok(Some(ClientIdentity { certificate, key })),
            (None, None) => Ok(None),
            (Some((present, _)), None) => Err(SettingsError::HalfIdentity { present, missing: CLIENT_KEY[GENERAL] }),
            (None, Some((present, _))) => {
                Err(SettingsError::HalfIdentity { present, missing: CLIENT_CERTIFICATE[GENERAL] })
            }
        }
    }

    fn authority(&self) -> Result<Option<Pem>, SettingsError> {
        let Some((variable, pem)) = self.file(CERTIFICATE)? else { return Ok(None) };
        if pem.certificates() == Some(0) {
            return Err(SettingsError::NoCertificate { variable });
        }
        Ok(Some(pem))
    }

    fn file(&self, names: Names) -> Result<Option<(&'static str, Pem)>, SettingsError> {
        let Some((variable, path)) = self.get(names) else { return Ok(None) };
        let path = PathBuf::from(path);
        match Pem::read(path.clone()) {
            Ok(pem) => Ok(Some((variable, pem))),
            Err(source) => Err(SettingsError::File { variable, path, source }),
        }
    }
}
