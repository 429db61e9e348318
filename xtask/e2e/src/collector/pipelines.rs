//! Checks the pipelines in otel-config with the collector.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use xtask_common::machine;

fn pipeline() -> PathBuf {
    machine::workspace().join("otel-config/collector.yaml")
}

/// Runs `otelcol validate` on a configuration, with environment variables.
fn validate(config: &Path, environment: &[(&str, &str)]) -> anyhow::Result<String> {
    let mut command = Command::new(super::path()?);
    command.arg("validate").arg("--config").arg(config).env_clear().envs(environment.iter().copied());
    machine::output(&mut command)
}

/// Returns a copy of the pipeline with one piece of text replaced.
fn changed(folder: &Path, from: &str, to: &str) -> PathBuf {
    let text = fs::read_to_string(pipeline()).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from:?} must occur once in the pipeline");
    let copy = folder.join("collector.yaml");
    fs::write(&copy, text.replace(from, to)).unwrap();
    copy
}

#[test]
fn the_pipeline_is_valid() {
    validate(&pipeline(), &[]).unwrap();
}

#[test]
fn the_pipeline_of_a_node_is_valid() {
    validate(&machine::workspace().join("otel-config/agent.yaml"), &[]).unwrap();
}

#[test]
fn the_pipeline_is_valid_for_a_backend() {
    let backend = [("METRICS_EXPORTERS", "[otlp_http/backend]"), ("BACKEND_OTLP_ENDPOINT", "https://otlp.example.com")];
    validate(&pipeline(), &backend).unwrap();
}

#[test]
fn an_error_names_an_unknown_key() {
    let folder = tempfile::tempdir().unwrap();
    let config = changed(folder.path(), "send_batch_size:", "send_batch_sizes:");
    let error = validate(&config, &[]).unwrap_err().to_string();
    assert!(error.contains("send_batch_sizes"), "{error}");
}

#[test]
fn an_error_names_an_undefined_exporter() {
    let error = validate(&pipeline(), &[("METRICS_EXPORTERS", "[otlp_http/elsewhere]")]).unwrap_err().to_string();
    assert!(error.contains("otlp_http/elsewhere"), "{error}");
}

#[test]
fn a_batch_above_its_limit_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let config = changed(folder.path(), "send_batch_max_size: 3000", "send_batch_max_size: 300");
    let error = validate(&config, &[]).unwrap_err().to_string();
    assert!(error.contains("send_batch_max_size"), "{error}");
}
