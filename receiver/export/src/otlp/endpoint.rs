//! The endpoint of the collector.

use std::path::PathBuf;

use http::Uri;

use super::{EndpointError, Protocol};

/// The scheme of Unix sockets, as in gRPC's name resolution: `unix:PATH` or `unix://PATH`.
const UNIX: &str = "unix:";

/// Returns the absolute path of a Unix socket; `None` for another endpoint.
pub(super) fn socket(text: &str) -> Option<PathBuf> {
    let path = text.trim().strip_prefix(UNIX)?;
    let path = path.strip_prefix("//").unwrap_or(path);
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// Returns the default endpoint of a collector.
pub(super) fn default_for(protocol: Protocol) -> String {
    format!("http://localhost:{}", protocol.port())
}

/// Parses an endpoint by the OTLP exporter specification. `http://` selects plaintext and `https://` selects TLS,
/// regardless of `OTEL_EXPORTER_OTLP_INSECURE`. Without a scheme, TLS is used unless that variable is true.
pub(super) fn parse(text: &str, insecure: bool) -> Result<Uri, EndpointError> {
    let text = text.trim();
    if text.starts_with(UNIX) {
        // Requests need a host, which servers behind a socket ignore.
        return socket(text).map(|_| Uri::from_static("http://localhost")).ok_or(EndpointError::Socket);
    }
    let with_scheme = if has_scheme(text) {
        text.to_owned()
    } else {
        format!("{}://{text}", if insecure { "http" } else { "https" })
    };
    let uri: Uri = with_scheme.parse().map_err(EndpointError::Syntax)?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        scheme => return Err(EndpointError::Scheme(scheme.unwrap_or_default().to_owned())),
    }
    let (Some(authority), Some(host)) = (uri.authority(), uri.host().filter(|host| !host.is_empty())) else {
        return Err(EndpointError::NoHost);
    };
    // The parser accepts any text as a port.
    match authority.as_str().strip_prefix(host) {
        None => Err(EndpointError::Credentials),
        Some("") => Ok(uri),
        Some(_) if uri.port_u16().is_some() => Ok(uri),
        Some(port) => Err(EndpointError::Port(port.trim_start_matches(':').to_owned())),
    }
}

/// Returns an endpoint without the zone of its IPv6 address, which has a meaning on this host only (RFC 6874, section 4).
pub(super) fn without_zone(endpoint: &Uri) -> Uri {
    let text = endpoint.to_string();
    let Some((before, after)) = text.split_once("%25") else { return endpoint.clone() };
    let rest = after.split_once(']').map_or("", |(_, rest)| rest);
    format!("{before}]{rest}").parse().unwrap_or_else(|_| endpoint.clone())
}

/// Appends a path to the path of an endpoint for all signals. A query stays at the end.
///
/// # Errors
/// If the result is too long for a URI.
pub(super) fn append(base: &Uri, path: &str) -> Result<Uri, EndpointError> {
    let mut parts = base.clone().into_parts();
    let prefix = base.path().trim_end_matches('/');
    let query = base.query().map_or_else(String::new, |query| format!("?{query}"));
    parts.path_and_query = Some(format!("{prefix}{path}{query}").parse().map_err(EndpointError::Syntax)?);
    Uri::from_parts(parts).map_err(|_| EndpointError::NoHost)
}

/// Returns an endpoint without its query, which may contain a secret.
#[must_use]
pub fn without_query(endpoint: &str) -> &str {
    endpoint.split(['?', '#']).next().unwrap_or_default()
}

/// Returns true if an endpoint names its scheme.
pub(super) fn has_scheme(text: &str) -> bool {
    text.contains("://")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::variants::variants;

    const PLAUSIBLE: [&str; 8] = [
        "http://collector:4317",
        "https://collector.example",
        "collector:4317",
        "10.0.0.1:04317",
        "http://[fe80::1%25eth0]:4317",
        "[::1]:4317",
        "http://user:secret@collector:4317",
        "http://collector:4317/v1/metrics",
    ];

    proptest! {
        /// An accepted endpoint has the host and the port of the text, and no part of the text is lost.
        #[test]
        fn odd_endpoints_are_read_or_refused(text in variants(&PLAUSIBLE), insecure: bool) {
            if let Ok(uri) = parse(&text, insecure) && socket(&text).is_none() {
                let kept = uri.to_string();
                let scheme = if has_scheme(&text) { "" } else if insecure { "http://" } else { "https://" };
                let expected = format!("{scheme}{}", text.trim());
                let (kept, expected) = (kept.trim_end_matches('/'), expected.trim_end_matches('/'));
                prop_assert!(kept.eq_ignore_ascii_case(expected), "{:?} became {}", text, uri);
                prop_assert!(!text.contains('@') && uri.host().is_some_and(|host| !host.is_empty()), "{:?}", text);
            }
        }

        #[test]
        fn the_zone_alone_is_removed(text in variants(&PLAUSIBLE)) {
            if let Ok(uri) = parse(&text, true) {
                let bare = without_zone(&uri);
                prop_assert!(bare.host().is_some_and(|host| !host.contains('%')), "{}", bare);
                prop_assert_eq!((bare.scheme(), bare.port_u16(), bare.path()), (uri.scheme(), uri.port_u16(), uri.path()));
            }
        }
    }

    fn parsed(text: &str, insecure: bool) -> String {
        parse(text, insecure).map_or_else(|error| format!("error: {error}"), |uri| uri.to_string())
    }

    #[test]
    fn the_scheme_takes_precedence_over_insecure() {
        assert_eq!(parsed("http://collector:4317", false), "http://collector:4317/");
        assert_eq!(parsed("https://collector:4317", true), "https://collector:4317/");
        assert_eq!(parsed("collector:4317", false), "https://collector:4317/");
        assert_eq!(parsed("collector:4317", true), "http://collector:4317/");
        assert_eq!(parsed("[::1]:4317", true), "http://[::1]:4317/");
    }

    #[test]
    fn the_zone_of_an_address_stays_on_this_host() {
        let uri = parse("http://[fe80::1%25eth0]:4317", false).expect("an endpoint");
        assert_eq!((uri.host(), uri.port_u16()), (Some("[fe80::1%25eth0]"), Some(4317)));
        assert_eq!(without_zone(&uri).to_string(), "http://[fe80::1]:4317/");
        let uri = parse("http://collector:4317", false).expect("an endpoint");
        assert_eq!(without_zone(&uri), uri);
    }

    #[test]
    fn unix_sockets_have_a_path_and_no_tls() {
        for text in ["unix:///run/otel.sock", "unix:/run/otel.sock"] {
            assert_eq!(socket(text), Some("/run/otel.sock".into()));
            assert_eq!(parsed(text, false), "http://localhost/");
        }
        assert_eq!(socket("http://collector:4317"), None);
    }

    #[test]
    fn invalid_endpoints_have_a_reason() {
        for text in [
            "foo bar",
            "http://",
            "",
            "ftp://collector",
            "unix:run/otel.sock",
            "unix://",
            "http://host:port",
            "host:",
            "host:99999",
            "user:pw@host",
        ] {
            let shown = parsed(text, true);
            assert!(shown.starts_with("error: "), "`{text}` gave {shown}");
        }
        insta::assert_snapshot!(parsed("ftp://collector", false), @"error: its scheme is `ftp`; use `http` for plaintext or `https` for TLS");
    }
}
