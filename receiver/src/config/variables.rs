//! Environment variables: those of the OpenTelemetry specification, and others.

use std::fmt::Write as _;

use crate::{
    environment::{Environment, value},
    export::otlp,
    telemetry::{RESOURCE_ATTRIBUTES, SERVICE_NAME},
};

/// Disables all measurements.
pub const SDK_DISABLED: &str = "OTEL_SDK_DISABLED";
/// Selects the outputs.
pub const METRICS_EXPORTER: &str = "OTEL_METRICS_EXPORTER";
/// Disables the delivery of the sidecar's own logs.
pub const LOGS_EXPORTER: &str = "OTEL_LOGS_EXPORTER";
/// Disables spans.
pub const TRACES_EXPORTER: &str = "OTEL_TRACES_EXPORTER";
/// Sets the interval.
pub const EXPORT_INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";

/// Variables with a common meaning.
struct Row {
    /// The names; the first one takes precedence.
    names: &'static [&'static str],
    support: Support,
}

enum Support {
    /// The meaning of the value.
    Applied(&'static str),
    /// The meaning of `true`. Other values than `true` and `false` count as `false`.
    Truth(&'static str),
    /// The reason why every value is ignored.
    Ignored(&'static str),
}

use Support::{Applied, Ignored, Truth};

const fn row(names: &'static [&'static str], support: Support) -> Row {
    Row { names, support }
}

const LIMITED_LOGS: &str = "the queue and the requests of the sidecar's own logs have fixed limits";
const OWN_SPANS: &str = "`signals.slow_packets` in the configuration file selects and limits spans";
const OTLP_ONLY: &str = "Undercurrent exports by OTLP";

/// The variables of the OpenTelemetry specification (sdk-environment-variables.md, protocol/exporter.md,
/// metrics/sdk_exporters/otlp.md), and the other variables that Undercurrent reads.
const VARIABLES: [Row; 33] = [
    row(&[SDK_DISABLED], Applied("`true` measures nothing: the process waits for a signal or the end of `--duration`")),
    row(
        &[METRICS_EXPORTER],
        Applied(
            "the outputs: `otlp`, `console` (the table), `otlp/stdout` (JSON lines), or a list of these; `none` measures \
             nothing, like `OTEL_SDK_DISABLED=true`. `--output` takes precedence",
        ),
    ),
    row(
        &otlp::ENDPOINT,
        Applied(
            "the endpoint of the collector; an endpoint for metrics makes `otlp` the default output. For HTTP, the path of the signal \
             (`/v1/metrics`, `/v1/traces`, `/v1/logs`) is appended to `OTEL_EXPORTER_OTLP_ENDPOINT`, and not to an endpoint of one signal. `unix:///PATH` is the socket of a \
             collector on this node",
        ),
    ),
    row(&otlp::INSECURE, Truth("`true` selects plaintext for an endpoint without a scheme")),
    row(&otlp::HEADERS, Applied("headers of each request, as `key=value,key=value`")),
    row(&otlp::COMPRESSION, Applied("`gzip`, `zstd` or `none`")),
    row(&otlp::TIMEOUT, Applied("the limit of a request in milliseconds")),
    row(&otlp::PROTOCOL, Applied("`grpc`, `http/protobuf` or `http/json`")),
    row(&otlp::CERTIFICATE, Applied("the file of the trusted authority, which each new connection reads again")),
    row(
        &otlp::CLIENT_CERTIFICATE,
        Applied("the file of the client's certificate, which each new connection reads again"),
    ),
    row(&otlp::CLIENT_KEY, Applied("the file of the client's key, which each new connection reads again")),
    row(
        &[otlp::TEMPORALITY],
        Applied(
            "`cumulative` (the default), `delta`, or `lowmemory` (histograms as `delta`, counters as `cumulative`). With `delta`, a point \
             covers the time since its series was last acknowledged, so an outage of the collector loses no counts",
        ),
    ),
    row(
        &[otlp::HISTOGRAMS],
        Applied(
            "`base2_exponential_bucket_histogram` (the default) or `explicit_bucket_histogram`, whose bounds are the powers of two from \
             2^-24 s (60 ns) to 2^4 s. They are bounds of the exponential histograms, so the counts are exact",
        ),
    ),
    row(&[EXPORT_INTERVAL], Applied("the interval in milliseconds")),
    row(&[RESOURCE_ATTRIBUTES], Applied("attributes of the node, as `key=value,key=value`")),
    row(&[SERVICE_NAME], Applied("`service.name` of the node")),
    row(
        &["OTEL_LOG_LEVEL"],
        Applied("the log level, if `RUST_LOG` is not set: `error`, `warn`, `info`, `debug`, `trace`"),
    ),
    row(&["RUST_LOG"], Applied("the log level, or `target=level,target=level`")),
    row(&["NO_COLOR"], Applied("any value disables colours")),
    row(&["K8S_NODE_NAME", "NODE_NAME"], Applied("the name of the Kubernetes node")),
    row(&["DOCKER_HOST"], Applied("with `unix://`, another socket of Docker")),
    row(
        &[TRACES_EXPORTER],
        Applied(
            "`none` disables `signals.slow_packets`; `otlp`, the default, sends spans to the outputs of the metrics",
        ),
    ),
    row(
        &["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
        Ignored("Undercurrent connects to the collector without a proxy"),
    ),
    row(
        &[LOGS_EXPORTER],
        Applied(
            "`none` keeps the sidecar's own logs on standard error; `otlp`, the default, also sends them to the collector \
             of the output `otlp`",
        ),
    ),
    row(
        &["OTEL_METRIC_EXPORT_TIMEOUT"],
        Ignored("OTEL_EXPORTER_OTLP_TIMEOUT limits a request, and a newer snapshot replaces one that waits"),
    ),
    row(&["OTEL_METRICS_EXEMPLAR_FILTER"], Ignored("exemplars belong to the spans of `signals.slow_packets`")),
    row(
        &["OTEL_EXPORTER_PROMETHEUS_HOST", "OTEL_EXPORTER_PROMETHEUS_PORT"],
        Ignored("`--listen` and `listen.address` in the configuration file set the address for Prometheus"),
    ),
    row(
        &["OTEL_CONFIG_FILE", "OTEL_EXPERIMENTAL_CONFIG_FILE"],
        Ignored("Undercurrent has its own file, which `--config` names"),
    ),
    row(&["OTEL_EXPORTER_OTLP_METRIC_INSECURE"], Ignored("it is obsolete; use OTEL_EXPORTER_OTLP_METRICS_INSECURE")),
    row(&["OTEL_EXPORTER_OTLP_SPAN_INSECURE"], Ignored("it is obsolete; use OTEL_EXPORTER_OTLP_TRACES_INSECURE")),
    row(
        &[
            "OTEL_BLRP_SCHEDULE_DELAY",
            "OTEL_BLRP_EXPORT_TIMEOUT",
            "OTEL_BLRP_MAX_QUEUE_SIZE",
            "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",
            "OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT",
        ],
        Ignored(LIMITED_LOGS),
    ),
    row(
        &[
            "OTEL_PROPAGATORS",
            "OTEL_TRACES_SAMPLER",
            "OTEL_TRACES_SAMPLER_ARG",
            "OTEL_BSP_SCHEDULE_DELAY",
            "OTEL_BSP_EXPORT_TIMEOUT",
            "OTEL_BSP_MAX_QUEUE_SIZE",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
            "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_SPAN_EVENT_COUNT_LIMIT",
            "OTEL_SPAN_LINK_COUNT_LIMIT",
            "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            "OTEL_ATTRIBUTE_COUNT_LIMIT",
        ],
        Ignored(OWN_SPANS),
    ),
    row(
        &["OTEL_EXPORTER_ZIPKIN_ENDPOINT", "OTEL_EXPORTER_ZIPKIN_TIMEOUT", "OTEL_EXPORTER_ZIPKIN_PROTOCOL"],
        Ignored(OTLP_ONLY),
    ),
];

/// Returns a warning for each reason why variables of this environment are ignored. Values may be secrets, and are not part
/// of the warnings.
#[must_use]
pub fn ignored(environment: Environment<'_>) -> Vec<String> {
    let mut warnings: Vec<(Vec<String>, &'static str)> = Vec::new();
    let mut warn = |name: String, reason| match warnings.iter_mut().find(|(_, known)| *known == reason) {
        Some((names, _)) => names.push(name),
        None => warnings.push((vec![name], reason)),
    };
    for Row { names, support } in &VARIABLES {
        for name in *names {
            let Some(value) = value(environment, name) else { continue };
            match support {
                Applied(_) => {}
                Truth(_) if ["true", "false"].iter().any(|word| value.trim().eq_ignore_ascii_case(word)) => {}
                Truth(_) => warn(format!("{name} other than `true` and `false`"), "it counts as `false`"),
                Ignored(reason) => warn((*name).to_owned(), *reason),
            }
        }
    }
    let text = |(names, reason): (Vec<String>, &str)| {
        let verb = if names.len() == 1 { "is not supported and was" } else { "are not supported and were" };
        format!("{} {verb} ignored: {reason}", names.join(", "))
    };
    warnings.into_iter().map(text).collect()
}

/// Appends the table of variables to the page.
pub fn append(page: &mut String) {
    page.push_str(
        "\n## Environment variables\n\nThe variables of the OpenTelemetry specification, and others that Undercurrent reads. They take \
         precedence over the file, and flags take\nprecedence over them. An empty variable counts as unset. A variable that is set and \
         ignored causes a warning at start.\n\n| variable | meaning |\n|---|---|\n",
    );
    for Row { names, support } in &VARIABLES {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let meaning = match support {
            Applied(meaning) | Truth(meaning) => (*meaning).to_owned(),
            Ignored(reason) => format!("ignored: {reason}"),
        };
        let _ = writeln!(page, "| {} | {meaning} |", names.join("<br>"));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    proptest::proptest! {
        /// A boolean variable is true, false or unset, or has a warning.
        #[test]
        fn no_odd_truth_is_silent(value in crate::variants::variants(&["true", "false", "1", "yes", "on"])) {
            let said = warnings(&[("OTEL_EXPORTER_OTLP_INSECURE", &value)]);
            let is_known = ["true", "false", ""].iter().any(|known| value.trim().eq_ignore_ascii_case(known));
            proptest::prop_assert_eq!(said.is_empty(), is_known, "{:?}: {:?}", value, said);
        }
    }

    fn warnings(variables: &[(&str, &str)]) -> Vec<String> {
        ignored(&|name| variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn each_variable_has_one_row() {
        let names: Vec<&str> = VARIABLES.iter().flat_map(|row| row.names).copied().collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn ignored_variables_are_named_with_a_reason_and_without_values() {
        insta::assert_snapshot!(warnings(&[
            ("OTEL_TRACES_SAMPLER", "always_off"),
            ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "authorization=secret"),
            ("OTEL_EXPORTER_OTLP_SPAN_INSECURE", "true"),
            ("OTEL_METRICS_EXEMPLAR_FILTER", "always_on"),
            ("OTEL_LOGS_EXPORTER", "otlp"),
            ("OTEL_EXPORTER_OTLP_INSECURE", "1"),
            ("https_proxy", "http://user:secret@proxy:3128"),
        ])
        .join("\n"), @"
        OTEL_EXPORTER_OTLP_INSECURE other than `true` and `false` is not supported and was ignored: it counts as `false`
        https_proxy is not supported and was ignored: Undercurrent connects to the collector without a proxy
        OTEL_METRICS_EXEMPLAR_FILTER is not supported and was ignored: exemplars belong to the spans of `signals.slow_packets`
        OTEL_EXPORTER_OTLP_SPAN_INSECURE is not supported and was ignored: it is obsolete; use OTEL_EXPORTER_OTLP_TRACES_INSECURE
        OTEL_TRACES_SAMPLER is not supported and was ignored: `signals.slow_packets` in the configuration file selects and limits spans
        ");
    }

    #[test]
    fn applied_and_empty_variables_cause_no_warning() {
        assert!(
            warnings(&[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317"),
                ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4317"),
                ("OTEL_TRACES_EXPORTER", "otlp"),
                ("OTEL_LOGS_EXPORTER", "none"),
                ("OTEL_TRACES_SAMPLER", " "),
                ("OTEL_METRICS_EXPORTER", "otlp"),
                ("OTEL_EXPORTER_OTLP_INSECURE", "True"),
            ])
            .is_empty()
        );
    }
}
