//! Attacks through files, pipes, devices and collectors that the sidecar reads and writes.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::{MetadataExt as _, symlink},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    fs::{CWD, Mode, mkfifoat},
    process::{Pid, Signal, kill_process},
};

use crate::{
    delays::Throttling,
    support::{
        collector::Collector,
        sidecar::wall_clock,
        surroundings::{alone, patience, skip, wait_for},
    },
};

/// Exit status of a sidecar with an invalid configuration or output.
const INVALID: i32 = 2;
/// Exit status of a sidecar with a failed part.
const CANNOT_RUN: i32 = 3;
/// Much longer than a refusal takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the sidecar with these arguments and variables, in a bounded address space. Panics if it does not end
/// without a signal.
pub fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    run_within(&["--as=4000000000"], arguments, variables)
}

/// Runs the sidecar within limits of `prlimit`.
fn run_within(limits: &[&str], arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new("prlimit");
    command.args(limits).args(["--", env!("CARGO_BIN_EXE_undercurrent"), "run"]).args(arguments);
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

/// Returns the message of a sidecar that refused its configuration.
fn refusal(output: Output) -> String {
    failure(INVALID, output)
}

/// Returns the message of a sidecar that failed with this exit status.
fn failure(status: i32, output: Output) -> String {
    let message = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(status), "{message}");
    message
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn a_moved_output_is_written_again_under_its_name() {
    let Some(_alone) = alone("a moved output") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (output, moved) = (folder.path().join("lines"), folder.path().join("moved"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_undercurrent"));
    command.args(["run", "--interval", "200ms", "--output", &format!("json={}", text(&output))]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let has_lines = |path: &Path| fs::metadata(path).is_ok_and(|file| file.len() > 0).then_some(());
    wait_for("lines", patience(Duration::from_secs(30)), || has_lines(&output));
    fs::rename(&output, &moved).unwrap();
    wait_for("lines in a new file", patience(Duration::from_secs(30)), || has_lines(&output));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_collector_neither_ends_the_sidecar_nor_forges_its_log() {
    if !rustix::process::geteuid().is_root() {
        return skip("a hostile collector: without root the sidecar measures nothing");
    }
    let collector = Throttling::start(i64::MAX);
    let output = run(
        &["--output", "otlp", "--interval", "200ms", "--duration", "1500ms"],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint)],
    );
    let log = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "nothing was delivered: {log}");
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

#[test]
fn an_output_without_a_thread_ends_the_sidecar_with_an_error() {
    let Some(_alone) = alone("an output without a thread") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("json={}", text(&folder.path().join("lines")));
    // The worker is a process of its user. The limit does not apply to root, who starts the other parts. The third thread is that
    // of name resolutions.
    for (limit, expected) in [("--nproc=1", "raise the limit of tasks"), ("--nproc=3", "output `json` ended")] {
        let message = failure(CANNOT_RUN, run_within(&[limit], &["--output", &file, "--interval", "200ms"], &[]));
        assert!(message.contains("cannot start a thread") && message.contains(expected), "{limit}: {message}");
        assert!(!message.contains("panicked"), "{message}");
    }
}

/// Starts a sidecar that writes JSON to standard output, reads one line, and closes the pipe.
fn with_closed_pipe(arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undercurrent"));
    command.args(["run", "--output", "json", "--interval", "200ms"]).args(arguments).envs(variables.iter().copied());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a child");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with('{'), "{line}");
    child
}

#[test]
fn the_sidecar_ends_in_order_when_nobody_reads_the_last_output() {
    let Some(_alone) = alone("a closed pipe") else { return };
    let mut child = with_closed_pipe(&[], &[]);
    let status = wait_for("the sidecar to end", patience(PATIENCE), || child.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_closed_pipe_does_not_end_the_other_outputs() {
    let Some(_alone) = alone("a closed pipe beside a collector") else { return };
    let collector = Collector::start(Duration::ZERO, usize::MAX);
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.endpoint())];
    let mut child = with_closed_pipe(&["--output", "otlp"], &variables);
    let closed = wall_clock();
    wait_for("later deliveries", patience(PATIENCE), || {
        (collector.deliveries().iter().filter(|delivery| delivery.time > closed).count() > 5).then_some(())
    });
    kill_process(Pid::from_child(&child), Signal::TERM).expect("a child");
    let status = wait_for("the sidecar to end", patience(PATIENCE), || child.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(0));
}
