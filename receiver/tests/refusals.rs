//! Tests of the built program with invalid input: it prints one clear error, returns the right exit status and
//! leaves nothing behind.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// The exit status of an invalid command line, configuration or output.
const INVALID: i32 = 2;
/// The exit status of a sidecar that cannot run.
const CANNOT_RUN: i32 = 3;
/// The exit status of a run that delivered no snapshot.
const NOTHING_DELIVERED: i32 = 1;
/// The conventional user that owns nothing.
const NOBODY: u32 = 65534;

fn program(binary: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary.as_ref());
    // The program ends soon in any case, and the environment of the test run does not affect it.
    command.args(arguments).env_clear().env("NO_COLOR", "1");
    command
}

fn undercurrent(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_undercurrent"), arguments)
}

fn run(command: &mut Command) -> Output {
    command.output().expect("the program starts")
}

/// Returns the error of a command with invalid input, with the folder of the test as `DIR`.
fn refusal(command: Command, folder: &Path) -> String {
    failure(command, INVALID, folder)
}

/// Returns the error of a command that must fail with this exit status, with the folder of the test as `DIR`.
fn failure(mut command: Command, status: i32, folder: &Path) -> String {
    let output = run(&mut command);
    let said = String::from_utf8(output.stderr).expect("text").replace(&folder.display().to_string(), "DIR");
    assert_eq!(output.status.code(), Some(status), "{command:?}: {said}");
    assert!(output.stdout.is_empty(), "{command:?}: nothing is measured");
    said
}

/// Returns the error of each command line, after the command line.
fn refusals(command_lines: &[&[&str]], folder: &Path) -> String {
    let said = |arguments: &&[&str]| {
        let line = arguments.join(" ").replace(&folder.display().to_string(), "DIR");
        format!("$ undercurrent {line}\n{}", refusal(undercurrent(arguments), folder))
    };
    command_lines.iter().map(said).collect::<Vec<_>>().join("\n")
}

/// Returns true if this user can load programs. Otherwise it reports the test as skipped.
fn may_load(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(&format!("{test}: loading eBPF programs needs root"));
    }
    root
}

/// Reports a test as skipped.
fn skip(reason: &str) {
    if let Some(file) = std::env::var_os("UNDERCURRENT_SKIPS") {
        let mut skips = fs::OpenOptions::new().append(true).open(file).expect("the file of skips");
        writeln!(skips, "SKIPPED: {reason}").expect("written");
    }
}

/// Returns a command that runs the program as a user without capabilities, from a folder that the user can access.
fn unprivileged(folder: &TempDir, arguments: &[&str]) -> Command {
    let binary = folder.path().join("undercurrent");
    fs::copy(env!("CARGO_BIN_EXE_undercurrent"), &binary).expect("copied");
    for path in [folder.path(), &binary] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("opened");
    }
    let mut command = program(&binary, arguments);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

#[test]
fn invalid_command_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    insta::assert_snapshot!(refusals(
        &[
            &["--interval", "0"],
            &["--interval", "0s"],
            &["--interval", "1ms"],
            &["--interval", "soon"],
            &["--interval", "-1s"],
            &["--duration", "-1s"],
            &["--duration", "0s"],
            &["--output", "jsno"],
            &["--output", "json="],
            &["--outptu", "json"],
            &["docter"],
        ],
        folder.path()
    ));
}

#[test]
fn invalid_configuration_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let texts = [
        "interval: [1s\n",
        "interval: \"1s\n",
        "- interval\n",
        "intervall: 1s\n",
        "packets:\n  skale: 2\n",
        "memory_limit: [64MiB]\n",
        "signals: { latency: { enabled: maybe } }\n",
        "interval: 1s\ninterval: 2s\n",
        "interval: 0s\n",
        "memory_limit: 1KiB\n",
        "outputs: [tabel]\n",
    ];
    let untouched = folder.path().join("untouched.jsonl");
    fs::write(&untouched, "of an earlier run\n").expect("written");
    let output = format!("json={}", untouched.display());
    let mut said = refusals(
        &[&["--config", &format!("{}/missing.yaml", folder.path().display())], &["--config", &path(folder.path())]],
        folder.path(),
    );
    for text in texts {
        let file = folder.path().join("config.yaml");
        fs::write(&file, text).expect("written");
        let refused = refusal(undercurrent(&["--config", &path(&file), "--output", &output]), folder.path());
        said.push_str(&format!("\n{text}{refused}"));
    }
    insta::assert_snapshot!(said);
    assert_eq!(fs::read_to_string(untouched).expect("read"), "of an earlier run\n", "a refused run truncates no file");
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn invalid_collector_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    let untouched = folder.path().join("new.jsonl");
    let arguments = ["--duration", "1s", "--output", &format!("json={}", untouched.display()), "--output", "otlp"];
    let settings = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "not a url"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://collector:4317"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://:4317"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:99999"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/xml"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "no equals sign"),
    ];
    let refused = settings.map(|(variable, value)| {
        let mut command = undercurrent(&arguments);
        command.env(variable, value);
        format!("$ {variable}='{value}' undercurrent\n{}", refusal(command, folder.path()))
    });
    insta::assert_snapshot!(refused.join("\n"));
    assert!(!untouched.exists(), "a refused run creates no file");
}

#[test]
fn users_without_capabilities() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("new.jsonl");
    let arguments = ["--duration", "1s", "--output", &format!("json={}", output.display())];
    insta::assert_snapshot!(failure(unprivileged(&folder, &arguments), CANNOT_RUN, folder.path()));
    assert!(!output.exists(), "a refused run creates no file");

    let doctor = run(&mut unprivileged(&folder, &["doctor"]));
    let page = String::from_utf8(doctor.stdout).expect("text");
    assert_eq!(doctor.status.code(), Some(CANNOT_RUN), "{page}");
    let gate = run(&mut unprivileged(&folder, &["doctor", "--fail-on", "unusable"]));
    assert_eq!(gate.status.code(), Some(CANNOT_RUN), "{gate:?}");
    let mistyped = run(&mut unprivileged(&folder, &["doctor", "--fail-on", "never"]));
    assert_eq!(mistyped.status.code(), Some(INVALID), "{mistyped:?}");
    for words in ["cannot run", "not root", "CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"] {
        assert!(page.contains(words), "{words} in {page}");
    }
}

/// Runs the program by another one, with the arguments of both.
fn by(tool: &[&str], arguments: &[&str]) -> Command {
    let mut command = program(tool[0], &tool[1..]);
    command.arg(env!("CARGO_BIN_EXE_undercurrent")).args(arguments);
    command
}

#[test]
fn user_namespaces_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let namespace = ["/usr/bin/unshare", "--user", "--map-root-user"];
    if !run(program(namespace[0], &namespace[1..]).arg("true")).status.success() {
        return skip("user_namespaces_are_named: this host permits no user namespaces");
    }
    let arguments = ["--duration", "1s", "--output", "json"];
    insta::assert_snapshot!(failure(by(&namespace, &arguments), CANNOT_RUN, folder.path()));
    let doctor = run(&mut by(&namespace, &["doctor"]));
    let page = String::from_utf8(doctor.stdout).expect("text");
    assert_eq!(doctor.status.code(), Some(CANNOT_RUN), "{page}");
    assert!(page.contains("user namespace") && !page.contains("all required"), "{page}");
}

/// The soft limit is raised to the hard limit. Below that, the message names the limit.
#[test]
fn limits_of_descriptors_are_raised_or_named() {
    if !may_load("limits_of_descriptors_are_raised_or_named") {
        return;
    }
    let limited = |limit: &str| {
        let tool = ["/usr/bin/prlimit", &format!("--nofile={limit}")];
        run(&mut by(&tool, &["--duration", "1s", "--interval", "500ms", "--output", "json"]))
    };
    let raised = limited("40:4096");
    assert!(raised.status.success() && !raised.stdout.is_empty(), "{raised:?}");
    let refused = limited("40:40");
    let said = String::from_utf8(refused.stderr).expect("text");
    assert_eq!(refused.status.code(), Some(CANNOT_RUN), "{said}");
    assert!(["map", "Too many open files", "LimitNOFILE="].iter().all(|words| said.contains(words)), "{said}");
}

#[test]
fn unwritable_files() {
    if !may_load("unwritable_files") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    let outputs = [folder.path().to_owned(), file.join("below"), folder.path().join("missing/file")];
    let outputs = outputs.map(|path: PathBuf| format!("json={}", path.display()));
    let lines = outputs.each_ref().map(|output| ["--duration", "1s", "--output", output.as_str()]);
    insta::assert_snapshot!(refusals(&lines.each_ref().map(|line| line.as_slice()), folder.path()));
    assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "a refused run creates no file");
}

#[test]
fn a_full_disk_is_logged_once_and_does_not_end_the_run() {
    if !may_load("a_full_disk_is_logged_once_and_does_not_end_the_run") {
        return;
    }
    let arguments = ["--interval", "200ms", "--duration", "1500ms", "--output", "json=/dev/full"];
    let output = run(&mut undercurrent(&arguments));
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(NOTHING_DELIVERED), "{said}");
    let complaints: Vec<_> = said.lines().filter(|line| line.contains("/dev/full")).collect();
    assert_eq!(complaints.len(), 1, "{said}");
    assert!(said.trim_end().ends_with("snapshots (json: no_space); the log has the reasons"), "{said}");
    assert!(complaints[0].contains("No space left on device") && complaints[0].contains("free some space"), "{said}");
}

#[test]
fn a_refused_connection_is_logged_and_does_not_end_the_run() {
    if !may_load("a_refused_connection_is_logged_and_does_not_end_the_run") {
        return;
    }
    // No process listens on a port that was just closed.
    let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a port").port();
    let endpoint = format!("http://127.0.0.1:{port}");
    // The sidecar collects its log for a second before it sends it.
    let mut command = undercurrent(&["--interval", "200ms", "--duration", "4s"]);
    let output = run(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint));
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(NOTHING_DELIVERED), "{said}");
    // Each signal that has data complains once.
    let complaints = |what: &str| said.lines().filter(|line| line.contains(what)).collect::<Vec<_>>();
    let (metrics, logs) = (complaints("cannot deliver metrics"), complaints("cannot deliver logs"));
    assert_eq!((metrics.len(), logs.len(), complaints("cannot deliver").len()), (1, 1, 2), "{said}");
    for words in [&*endpoint, "Connection refused", "Is a collector listening"] {
        assert!(metrics[0].contains(words), "{words} in {said}");
    }
    assert!(said.contains("the last snapshot is lost"), "{said}");
    let last = said.lines().last().expect("a line");
    assert!(last.starts_with("undercurrent: delivered 0 of ") && last.contains("(otlp: unavailable)"), "{said}");
}

#[test]
fn a_closed_pipe_ends_the_run_without_an_error() {
    if !may_load("a_closed_pipe_ends_the_run_without_an_error") {
        return;
    }
    let mut command = undercurrent(&["--interval", "100ms", "--duration", "20s", "--output", "json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut first = String::new();
    // Closed after its first line, as `head -1` does.
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut first).expect("a line");
    assert!(first.starts_with("{\"resourceMetrics\":"), "{first}");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
}

#[test]
fn a_disabled_sidecar_measures_nothing() {
    for (variable, value) in [("OTEL_SDK_DISABLED", "true"), ("OTEL_METRICS_EXPORTER", "none")] {
        let mut command = undercurrent(&["--duration", "200ms"]);
        command.env(variable, value).env("OTEL_TRACES_SAMPLER", "always_on");
        let output = run(&mut command);
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{said}");
        assert!(said.contains(&format!("{variable} disables the sidecar")) && !said.contains(" signals: "), "{said}");
        assert!(said.contains("OTEL_TRACES_SAMPLER is not supported and was ignored"), "{said}");
    }
}
