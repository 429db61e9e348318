//! The endpoint of the collector.

use tonic::codegen::http::Uri;

use super::EndpointError;

/// The default endpoint of a collector.
pub(super) const DEFAULT: &str = "http://localhost:4317";

/// Parses an endpoint by the OTLP exporter specification. `http://` selects plaintext and `https://` selects TLS,
/// regardless of `OTEL_EXPORTER_OTLP_INSECURE`. Without a scheme, TLS is used unless that variable is true.
pub(super) fn parse(text: &str, insecure: bool) -> Result<Uri, EndpointError> {
    let text = text.trim();
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

/// Returns true if an endpoint names its scheme.
pub(super) fn has_scheme(text: &str) -> bool {
    text.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn invalid_endpoints_have_a_reason() {
        for text in [
            "foo bar",
            "http://",
            "",
            "ftp://collector",
            "unix:///run/otel.sock",
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
