//! The header list of `OTEL_EXPORTER_OTLP_HEADERS`.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use super::{Protocol, SettingsError};

/// The headers of HTTP/1 that divide a stream of bytes into messages. The client sets them.
const FRAMING: [&str; 7] =
    ["connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// Parses `key=value,key=value` in the format of W3C baggage without properties. White space around keys and
/// values is removed, values are percent-decoded, and empty members are skipped.
pub(super) fn parse(variable: &'static str, list: &str, protocol: Protocol) -> Result<HeaderMap, SettingsError> {
    let mut headers = HeaderMap::new();
    for (position, member) in list.split(',').enumerate().filter(|(_, member)| !member.trim().is_empty()) {
        let (key, value) = member.split_once('=').unwrap_or((member, ""));
        let key = key.trim();
        let error = |problem| SettingsError::Header { variable, position: position + 1, key: key.to_owned(), problem };
        if !member.contains('=') {
            return Err(SettingsError::Header {
                variable,
                position: position + 1,
                // Text without a `=` may be the end of a secret that contains a comma.
                key: "...".to_owned(),
                problem: "has no `=`",
            });
        }
        let value =
            percent_decode_str(value.trim()).decode_utf8().map_err(|_| error("has a value that is not UTF-8"))?;
        let (name, value) = header(key, &value, protocol).map_err(error)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Returns the headers of a configuration file, whose key is `origin`.
pub(super) fn of_file(
    origin: &'static str,
    given: &BTreeMap<String, String>,
    protocol: Protocol,
) -> Result<HeaderMap, SettingsError> {
    let mut headers = HeaderMap::new();
    for (key, value) in given {
        let error = |problem| SettingsError::FileHeader { origin, key: key.clone(), problem };
        let (name, value) = header(key, value, protocol).map_err(error)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Checks a header. An error is the end of a sentence that begins with the header's name.
fn header(key: &str, value: &str, protocol: Protocol) -> Result<(HeaderName, HeaderValue), &'static str> {
    let name = HeaderName::try_from(key).map_err(|_| "is not the name of a header")?;
    match (protocol, name.as_str()) {
        (Protocol::Grpc, name) if name.starts_with("grpc-") => return Err("is reserved by gRPC"),
        (Protocol::Grpc, name) if name.ends_with("-bin") => {
            return Err("has a name that gRPC reserves for binary values");
        }
        (Protocol::HttpProtobuf | Protocol::HttpJson, name) if FRAMING.contains(&name) => {
            return Err("is reserved by HTTP");
        }
        _ => {}
    }
    let mut value =
        HeaderValue::try_from(value).map_err(|_| "has a value with characters that headers do not allow")?;
    // Sensitive values are hidden in debug output and excluded from HPACK's table.
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::variants::variants;

    const VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";

    #[test]
    fn values_are_decoded_and_white_space_is_trimmed() -> Result<(), SettingsError> {
        let headers = parse(VARIABLE, "Authorization=Basic%20dXNlcjpwdw==, x-tenant = a%2Cb ,,", Protocol::Grpc)?;
        let value = |key| headers.get(key).and_then(|value| value.to_str().ok());
        assert_eq!(value("authorization"), Some("Basic dXNlcjpwdw=="));
        assert_eq!(value("x-tenant"), Some("a,b"));
        assert_eq!(headers.len(), 2);
        Ok(())
    }

    proptest! {
        /// Each member becomes one header, and no error contains a value.
        #[test]
        fn odd_lists_are_read_or_refused(list in variants(&["authorization=Bearer 5ecre7", "a=5ecre7,b=%2C5ecre7", "x=5ecre7="])) {
            match parse(VARIABLE, &list, Protocol::Grpc) {
                Ok(headers) => {
                    let members: std::collections::BTreeSet<String> = list
                        .split(',')
                        .filter_map(|member| Some(member.split_once('=')?.0.trim().to_ascii_lowercase()))
                        .collect();
                    prop_assert_eq!(headers.len(), members.len());
                }
                Err(error) => prop_assert!(!error.to_string().to_ascii_lowercase().contains("5ecre7"), "{}", error),
            }
        }
    }

    #[test]
    fn headers_of_a_file_are_taken_as_they_are() {
        let file = |key: &str, value: &str| {
            of_file("`otlp.headers`", &BTreeMap::from([(key.into(), value.into())]), Protocol::Grpc)
        };
        let headers = file("X-Token", "a=b, c%20").expect("headers");
        assert_eq!(headers.get("x-token").and_then(|value| value.to_str().ok()), Some("a=b, c%20"));
        let error = file("x token", "s3cret").expect_err("refused").to_string();
        assert_eq!(error, "`otlp.headers`: `x token` is not the name of a header");
    }

    fn shown(list: &str, protocol: Protocol) -> String {
        parse(VARIABLE, list, protocol).map_or_else(|error| error.to_string(), |_| "accepted".to_owned())
    }

    #[test]
    fn reserved_names_depend_on_the_protocol() {
        for (list, grpc, http) in
            [("grpc-timeout=1", false, true), ("x-bin=1", false, true), ("Transfer-Encoding=1", true, false)]
        {
            let accepted = [Protocol::Grpc, Protocol::HttpJson].map(|protocol| shown(list, protocol) == "accepted");
            assert_eq!(accepted, [grpc, http], "{list}");
        }
        assert!(!shown("te=1", Protocol::HttpProtobuf).contains("gRPC"));
    }

    #[test]
    fn errors_omit_the_value() {
        for list in ["a=1,s3cret", "a=1,b c=s3cret", "a=1,x-bin=s3cret", "a=1,b=s3cret%0a", "a=1,grpc-timeout=s3cret"] {
            let shown = shown(list, Protocol::Grpc);
            assert!(shown.contains(VARIABLE) && shown.contains("header 2"), "`{list}` gave {shown}");
            assert!(!shown.contains("s3cret"), "{shown}");
        }
    }
}
