use std::time::Duration;

use super::super::*;

fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    Settings::from_variables(|name| {
        variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    })
}

fn refused(variables: &[(&str, &str)]) -> String {
    read(variables).map_or_else(|error| error.to_string(), |settings| format!("accepted: {settings:?}"))
}

#[test]
fn the_default_is_the_collector_on_this_host() -> Result<(), SettingsError> {
    // An empty value counts as unset.
    for variables in
        [&[] as &[(&str, &str)], &[("OTEL_EXPORTER_OTLP_ENDPOINT", ""), ("OTEL_EXPORTER_OTLP_PROTOCOL", " ")]]
    {
        let settings = read(variables)?;
        assert_eq!(settings.endpoint, "http://localhost:4317/");
        assert_eq!((settings.compression, settings.timeout), (Compression::None, Duration::from_secs(10)));
        assert!(settings.headers.is_empty() && settings.authority.is_none() && settings.identity.is_none());
    }
    Ok(())
}

#[test]
fn variables_for_metrics_take_precedence() -> Result<(), SettingsError> {
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4317"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "metrics:4317"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "false"),
        ("OTEL_EXPORTER_OTLP_METRICS_INSECURE", "TRUE"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "3000"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
    ];
    let settings = read(&variables)?;
    assert_eq!(settings.endpoint, "http://metrics:4317/");
    assert_eq!((settings.compression, settings.timeout), (Compression::None, Duration::from_secs(3)));
    Ok(())
}

#[test]
fn an_endpoint_enables_otlp() {
    let set = |name: &'static str| endpoint_is_set(move |key| (key == name).then(|| "http://c:4317".to_owned()));
    assert!(set("OTEL_EXPORTER_OTLP_ENDPOINT") && set("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"));
    assert!(!set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"));
}

#[test]
fn errors_have_variable_value_and_remedy() {
    let lines = [
        refused(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "foo bar")]),
        refused(&[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "ftp://collector:21")]),
        refused(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:s3cret@collector:4317")]),
        refused(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]),
        refused(&[("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli")]),
        refused(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "10s")]),
        refused(&[("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "0")]),
        refused(&[("OTEL_EXPORTER_OTLP_HEADERS", "a=b,secret")]),
        refused(&[("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent/ca.pem")]),
    ];
    assert!(!lines.join("").contains("s3cret"));
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn an_incomplete_client_identity_is_refused() -> std::io::Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    let path = file.path().to_string_lossy();
    let missing = refused(&[("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &path)]);
    insta::assert_snapshot!(missing, @"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is set and OTEL_EXPORTER_OTLP_CLIENT_KEY is not; a client certificate needs both");
    let missing = refused(&[("OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY", &path)]);
    insta::assert_snapshot!(missing, @"OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY is set and OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is not; a client certificate needs both");
    Ok(())
}
