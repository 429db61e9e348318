//! Attacks through files, pipes, devices and collectors that the sidecar reads and writes.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
    metrics_service_server::{MetricsService, MetricsServiceServer},
};
use rustix::fs::{CWD, Mode, mkfifoat};
use tonic::{Code, Request, Response, Status, transport::Server, transport::server::TcpIncoming};

use crate::support::surroundings::skip;

/// Exit status of a sidecar that cannot run.
const CANNOT_RUN: i32 = 2;
/// Much longer than a refusal takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the sidecar with these arguments and variables, in a bounded address space. Panics if it does not end
/// without a signal.
pub fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new("prlimit");
    command.args(["--as=4000000000", "--", env!("CARGO_BIN_EXE_undercurrent"), "run"]).args(arguments);
    command.env_clear().env("NO_COLOR", "1").envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("prlimit starts");
    let start = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().expect("a child");
            panic!("the sidecar did not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("output")
}

/// Returns the message of a sidecar that refused to run.
fn refusal(output: Output) -> String {
    let message = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(CANNOT_RUN), "{message}");
    message
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// A collector that refuses everything, requests the longest possible delay, and attempts to forge a log line.
struct Hostile;

#[tonic::async_trait]
impl MetricsService for Hostile {
    async fn export(
        &self,
        _: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let field = |number: u8, content: &[u8]| {
            [&[number << 3 | 2, u8::try_from(content.len()).expect("a short field")], content].concat()
        };
        let mut duration = vec![1 << 3];
        prost::encoding::encode_varint(i64::MAX.cast_unsigned(), &mut duration);
        let any = [field(1, b"type.googleapis.com/google.rpc.RetryInfo"), field(2, &field(1, &duration))].concat();
        Err(Status::with_details(Code::Unavailable, "later\nERROR forged\r", field(3, &any).into()))
    }
}

#[test]
fn a_collector_neither_ends_the_sidecar_nor_forges_its_log() {
    if !rustix::process::geteuid().is_root() {
        return skip("a hostile collector: without root the sidecar measures nothing");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let incoming = runtime.block_on(async { TcpIncoming::bind(([127, 0, 0, 1], 0).into()) }).expect("a port");
    let endpoint = format!("http://{}", incoming.local_addr().expect("an address"));
    let server = Server::builder().add_service(MetricsServiceServer::new(Hostile)).serve_with_incoming(incoming);
    std::thread::spawn(move || runtime.block_on(server));
    let output = run(
        &["--output", "otlp", "--interval", "200ms", "--duration", "1500ms"],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)],
    );
    let log = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(0), "{log}");
    assert!(!log.contains("panicked") && log.contains("the last snapshot was not delivered"), "{log}");
    let forged: Vec<_> = log.lines().filter(|line| line.contains("forged")).collect();
    assert!(!forged.is_empty() && forged.iter().all(|line| line.contains("later\\nERROR forged\\r")), "{log}");
}

#[test]
fn a_pipe_as_configuration_does_not_hold_up_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("config.yaml");
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a pipe");
    let message = refusal(run(&["--config", text(&pipe)], &[]));
    assert!(message.contains("not a regular file"), "{message}");
}

#[test]
fn a_device_as_certificate_does_not_fill_the_memory() {
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", "https://localhost:4317"), ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/dev/zero")];
    let message = refusal(run(&["--output", "otlp"], &variables));
    assert!(message.contains("OTEL_EXPORTER_OTLP_CERTIFICATE") && message.contains("not a regular file"), "{message}");
}

#[test]
fn a_configuration_that_repeats_a_long_text_by_aliases_does_not_fill_the_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.yaml");
    let (text_once, aliases) = ("x".repeat(100_000), ", *long".repeat(100_000));
    fs::write(&file, format!("packets:\n  filter:\n    cgroups: [&long /{text_once}{aliases}]\n")).expect("written");
    let message = refusal(run(&["--config", text(&file)], &[]));
    assert!(message.contains("config.yaml"), "{message}");
}

#[test]
fn a_password_in_an_endpoint_is_refused_and_not_printed() {
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:secret@localhost:4317")];
    let message = refusal(run(&["--output", "otlp"], &variables));
    assert!(message.contains("OTEL_EXPORTER_OTLP_HEADERS") && !message.contains("secret"), "{message}");
}

#[test]
fn only_the_owner_may_read_the_json_file() {
    if !rustix::process::geteuid().is_root() {
        return skip("the mode of the JSON file: without root the sidecar ends before it opens the file");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lines");
    let output = run(&["--output", &format!("json={}", text(&file)), "--duration", "1s"], &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(fs::metadata(&file).expect("a file").mode() & 0o777, 0o600);
}

#[test]
fn a_symbolic_link_as_json_file_is_not_followed() {
    if !rustix::process::geteuid().is_root() {
        return skip("a link in the place of the JSON file: without root the sidecar ends before it opens the file");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (precious, link) = (folder.path().join("precious"), folder.path().join("lines"));
    fs::write(&precious, "precious").expect("written");
    symlink(&precious, &link).expect("a link");
    let message = refusal(run(&["--output", &format!("json={}", text(&link)), "--duration", "1s"], &[]));
    assert!(message.contains("it is a symbolic link"), "{message}");
    assert_eq!(fs::read_to_string(&precious).expect("text"), "precious");
}
