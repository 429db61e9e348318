use std::time::Duration;

use tonic::Status;

use super::{super::*, described};

fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    read_for(Items::Metrics, variables)
}

fn read_for(items: Items, variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let lookup = |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (name, (*value).to_owned()));
    Settings::from_variables(items, lookup, &FileSettings::default())
}

fn refused(variables: &[(&str, &str)]) -> String {
    refused_for(Items::Metrics, variables)
}

fn refused_for(items: Items, variables: &[(&str, &str)]) -> String {
    read_for(items, variables).map_or_else(|error| error.to_string(), |settings| format!("accepted: {settings:?}"))
}

proptest::proptest! {
    #[test]
    fn odd_timeouts_are_read_or_refused(text in crate::variants::variants(&["10000", "1", "10s", "1e3", "0", "2.5"])) {
        match read(&[("OTEL_EXPORTER_OTLP_TIMEOUT", &text)]) {
            Ok(settings) => {
                let number = text.trim().trim_start_matches('+').trim_start_matches('0');
                let expected = if text.trim().is_empty() { "10000" } else { number };
                proptest::prop_assert_eq!(settings.timeout.as_millis().to_string(), expected);
            }
            Err(error) => proptest::prop_assert!(error.to_string().contains(text.trim()), "{:?}: {}", text, error),
        }
    }
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
fn variables_for_traces_apply_to_spans_only() -> Result<(), SettingsError> {
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4317"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "traces:4317"),
        ("OTEL_EXPORTER_OTLP_TRACES_INSECURE", "true"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=all,b=all"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=traces"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "3000"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "4000"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
    ];
    let [metrics, spans] = [read(&variables)?, read_for(Items::Spans, &variables)?];
    assert_eq!([metrics.endpoint.to_string(), spans.endpoint.to_string()], ["http://all:4317/", "http://traces:4317/"]);
    assert_eq!([metrics.compression, spans.compression], [Compression::None, Compression::Gzip]);
    assert_eq!([metrics.timeout, spans.timeout], [4, 3].map(Duration::from_secs));
    assert_eq!(
        [&metrics, &spans].map(|settings| settings.headers.len()),
        [2, 1],
        "the headers replace the general ones"
    );
    assert!(!spans.connects_like(&metrics));
    // The specification has a default endpoint for each signal.
    let of_metrics = [("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://metrics:4317")];
    assert_eq!(read_for(Items::Spans, &of_metrics)?.endpoint, "http://localhost:4317/");
    Ok(())
}

#[test]
fn the_protocol_selects_port_and_path() -> Result<(), SettingsError> {
    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const METRICS: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
    let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    let endpoint = |items, variables: &[_]| Ok::<_, SettingsError>(read_for(items, variables)?.endpoint.to_string());
    for (variable, value, expected) in [
        (ALL, "", "http://localhost:4318/v1/metrics"),
        (ALL, "http://c:4318", "http://c:4318/v1/metrics"),
        (ALL, "http://c:4318/", "http://c:4318/v1/metrics"),
        (ALL, "https://c/api/v1/otlp/", "https://c/api/v1/otlp/v1/metrics"),
        (ALL, "http://c/a?key=s3cret", "http://c/a/v1/metrics?key=s3cret"),
        (METRICS, "http://c:4318", "http://c:4318/"),
        (METRICS, "http://c:4318/own/path/", "http://c:4318/own/path/"),
    ] {
        assert_eq!(endpoint(Items::Metrics, &[http, (variable, value)])?, expected);
    }
    assert_eq!(endpoint(Items::Spans, &[http])?, "http://localhost:4318/v1/traces");
    assert_eq!(endpoint(Items::Logs, &[http, (ALL, "http://c/x")])?, "http://c/x/v1/logs");
    let mixed =
        [http, ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/json")];
    let protocols =
        [Items::Metrics, Items::Spans, Items::Logs].map(|items| read_for(items, &mixed).map(|read| read.protocol));
    let [metrics, spans, logs] = protocols;
    assert_eq!([metrics?, spans?, logs?], [Protocol::HttpProtobuf, Protocol::Grpc, Protocol::HttpJson]);
    assert_eq!(endpoint(Items::Spans, &mixed)?, "http://localhost:4317/");
    Ok(())
}

#[test]
fn the_protocol_and_the_endpoint_of_a_file_apply_without_variables() -> Result<(), SettingsError> {
    let endpoint = Some("http://c:4318/otlp".to_owned());
    let file = FileSettings { protocol: Some(Protocol::HttpJson), endpoint, ..FileSettings::default() };
    let settings = Settings::from_variables(Items::Spans, |_| None, &file)?;
    assert_eq!((settings.protocol, settings.endpoint.path()), (Protocol::HttpJson, "/otlp/v1/traces"));
    Ok(())
}

#[test]
fn queries_of_endpoints_are_not_shown() -> Result<(), SettingsError> {
    let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    let settings = read(&[http, ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318?key=s3cret")])?;
    assert_eq!(settings.shown_endpoint(), "http://c:4318/v1/metrics");
    assert!(!refused(&[http, ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://c:4318?key=s3cret")]).contains("s3cret"));
    Ok(())
}

#[test]
fn headers_are_exposed_to_other_hosts_without_encryption_only() -> Result<(), SettingsError> {
    let with = |endpoint: &str, headers: &[(&str, &str)]| {
        let mut variables = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)];
        variables.extend(headers);
        read(&variables).map(|settings| settings.exposes_headers())
    };
    let token = [("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")];
    for endpoint in ["http://collector:4317", "http://10.0.0.1:4317", "http://[fd00::1]:4317"] {
        assert!(with(endpoint, &token)?, "{endpoint}");
        assert!(!with(endpoint, &[])?, "{endpoint} without headers");
    }
    for endpoint in [
        "https://collector:4317",
        "http://localhost:4317",
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "unix:///run/c.sock",
    ] {
        assert!(!with(endpoint, &token)?, "{endpoint}");
    }
    Ok(())
}

#[test]
fn one_connection_serves_equal_settings() -> Result<(), SettingsError> {
    let both = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4317")];
    let connects_like = |variable| {
        let variables = [both[0], variable];
        Ok::<_, SettingsError>(read_for(Items::Spans, &variables)?.connects_like(&read(&variables)?))
    };
    assert!(connects_like(("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b"))?);
    assert!(connects_like(("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://all:4317"))?);
    assert!(!connects_like(("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1"))?);
    assert!(!connects_like(("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"))?);
    assert!(connects_like(("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://all:4317/path"))?);
    let file = tempfile::NamedTempFile::new().map(|file| file.into_temp_path());
    let file = file.expect("a file");
    let authority = rcgen::generate_simple_self_signed(["collector".to_owned()]).expect("a certificate");
    std::fs::write(&file, authority.cert.pem()).expect("written");
    assert!(!connects_like(("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", &file.to_string_lossy()))?);
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
    let empty = tempfile::NamedTempFile::new().expect("a file");
    let lines = [
        refused(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "foo bar")]),
        refused(&[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "ftp://collector:21")]),
        refused(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:s3cret@collector:4317")]),
        refused(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/xml")]),
        refused(&[("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli")]),
        refused(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "10s")]),
        refused(&[("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "0")]),
        refused(&[("OTEL_EXPORTER_OTLP_HEADERS", "a=b,secret")]),
        refused(&[("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent/ca.pem")]),
        refused(&[("OTEL_EXPORTER_OTLP_CERTIFICATE", &empty.path().to_string_lossy())]),
        refused(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "unix:run/collector.sock")]),
        refused_for(Items::Spans, &[("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "HTTP/JSON")]),
    ];
    let lines = lines.join("\n").replace(&*empty.path().to_string_lossy(), "FILE");
    assert!(!lines.contains("s3cret"));
    insta::assert_snapshot!(lines);
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

#[test]
fn an_endpoint_without_a_scheme_is_explained() {
    let assumes_tls = |endpoint, insecure| {
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint), ("OTEL_EXPORTER_OTLP_INSECURE", insecure)];
        read(&variables).expect("settings").assumes_tls
    };
    assert_eq!([assumes_tls("collector:4317", ""), assumes_tls("collector:4317", "true")], [true, false]);
    assert_eq!([assumes_tls("https://collector:4317", ""), assumes_tls("http://collector:4317", "")], [false; 2]);
    let settings = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")]).expect("settings");
    let shown = |status: Status| described(&settings, &status);
    let note = "No scheme given, TLS assumed; write http:// for plaintext.";
    assert!(shown(Status::unavailable("corrupt message")).ends_with(note));
    assert!(!shown(Status::unauthenticated("")).contains(note));
}
