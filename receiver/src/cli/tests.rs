//! Tests of valid and invalid command lines, and of their messages.

use super::*;
use crate::config::ConfigError;
use crate::{doctor::FailOn, options::AttachKind};

fn command(line: &str) -> Command {
    parse(line.split(' ')).unwrap_or_else(|error| panic!("{error}"))
}

fn refusals(lines: &[&str]) -> String {
    let refusal = |line: &&str| {
        let error = parse(line.split(' ')).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
        format!("$ {line}\n{error}")
    };
    lines.iter().map(refusal).collect::<Vec<_>>().join("\n")
}

fn help(line: &str) -> String {
    let error = parse(line.split(' ')).expect_err(line);
    assert_eq!(error.exit_code(), 0);
    error.to_string()
}

#[test]
fn run_is_the_default() {
    assert_eq!(command("undercurrent"), Command::Run(Run::default()));
    assert_eq!(command("undercurrent run"), Command::Run(Run::default()));
    let line = "--config a.yaml --interval 500ms --duration 5s --output json=b --output otlp";
    let Command::Run(run) = command(&format!("undercurrent {line}")) else { panic!("a run") };
    assert_eq!(Command::Run(run.clone()), command(&format!("undercurrent run {line}")));
    assert_eq!(run.config, Some("a.yaml".into()));
    assert_eq!(run.flags.interval, "500ms".parse().ok());
    assert_eq!(run.flags.duration, "5s".parse().ok());
    assert_eq!(
        run.flags.outputs.expect("outputs").iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["json=b", "otlp"]
    );
}

#[test]
fn other_commands_are_parsed() {
    let doctor = DoctorArguments {
        json: true,
        probe: true,
        verbose: false,
        avoid: vec![AttachKind::Fentry],
        sysfs_root: None,
        level: None,
        energy: false,
        fail_on: FailOn::default(),
        config: None,
    };
    assert_eq!(command("undercurrent doctor --json --probe --avoid fentry"), Command::Doctor(doctor));
    let Command::Doctor(gate) = command("undercurrent doctor --fail-on unusable") else { panic!("doctor") };
    assert_eq!(gate.fail_on, FailOn::Unusable);
    assert_eq!(command("undercurrent signals"), Command::Signals(SignalsArguments { json: false }));
    assert!(matches!(command("undercurrent config schema"), Command::Print(text) if text.contains("\"$schema\"")));
    assert_eq!(command("undercurrent config example"), Command::Print(EXAMPLE.to_owned()));
    assert_eq!(command("undercurrent config check a.yaml"), Command::CheckConfig("a.yaml".into()));
    let Command::ShowConfig(shown) = command("undercurrent config show --config a.yaml --interval 2s") else {
        panic!("settings")
    };
    assert_eq!((shown.config, shown.flags.interval), (Some("a.yaml".into()), "2s".parse().ok()));
}

#[test]
fn completions_know_every_subcommand() {
    for shell in ["bash", "zsh", "fish"] {
        let Command::Print(script) = command(&format!("undercurrent completions {shell}")) else { panic!("a script") };
        for word in ["doctor", "flamegraph", "sysfs-root", "show"] {
            assert!(script.contains(word), "{word} in the script for {shell}");
        }
    }
}

/// Returns the path of each command, with its long options.
fn options(command: &clap::Command, path: &str) -> Vec<(String, Vec<String>)> {
    let long = command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)).collect();
    let path = format!("{path}{}", command.get_name());
    let below = command.get_subcommands().flat_map(|command| options(command, &format!("{path} ")));
    [(path.clone(), long)].into_iter().chain(below).collect()
}

#[test]
fn the_manual_page_has_every_command_with_its_options() {
    let Command::Print(page) = command("undercurrent man") else { panic!("a page") };
    let page = page.replace("\\-", "-");
    for (command, options) in options(&Arguments::command(), "") {
        let heading = if command == "undercurrent" { ".SH OPTIONS".into() } else { format!(".SH \"{command}\"") };
        let (_, section) = page.split_once(&heading).unwrap_or_else(|| panic!("no {heading} in {page}"));
        let section = section.split(".SH ").next().expect("a section");
        for option in options {
            assert!(section.contains(&format!("--{option}")), "--{option} of {command} in {section}");
        }
    }
    for section in [".SH ENVIRONMENT", "OTEL_EXPORTER_OTLP_ENDPOINT", ".SH \"EXIT STATUS\"", ".SS \"EXIT STATUS\""] {
        assert!(page.contains(section), "{section} in {page}");
    }
}

#[test]
fn the_configuration_file_may_precede_the_command() {
    let Command::Run(run) = command("undercurrent --config a.yaml run --interval 1s") else { panic!("a run") };
    assert_eq!((run.config, run.flags.interval), (Some("a.yaml".into()), "1s".parse().ok()));
    for line in ["undercurrent --config a.yaml doctor", "undercurrent doctor --config a.yaml"] {
        let Command::Doctor(doctor) = command(line) else { panic!("doctor") };
        assert_eq!(doctor.config, Some("a.yaml".into()), "{line}");
    }
}

#[test]
fn invalid_durations_are_refused() {
    insta::assert_snapshot!(refusals(&[
        "undercurrent --interval 0",
        "undercurrent run --interval 0s",
        "undercurrent run --interval 50ms",
        "undercurrent run --interval -1s",
        "undercurrent run --interval 10",
        "undercurrent --duration -5s",
        "undercurrent run --duration=-5s",
        "undercurrent run --duration 0s",
        "undercurrent run --duration --interval 1s",
        "undercurrent run --interval",
    ]));
}

#[test]
fn invalid_outputs_are_refused() {
    insta::assert_snapshot!(refusals(&[
        "undercurrent --output tabel",
        "undercurrent --output table=out.txt",
        "undercurrent --output otlp=http://localhost:4317",
        "undercurrent --output json=",
        "undercurrent --output otlp --output otlp",
        "undercurrent run --output table --output json",
    ]));
}

#[test]
fn misplaced_arguments_are_refused() {
    insta::assert_snapshot!(refusals(&[
        "undercurrent rnu",
        "undercurrent --intervall 1s",
        "undercurrent --interval 1s --interval 2s",
        "undercurrent --interval 1s doctor",
        "undercurrent --output json run",
        "undercurrent --config a.yaml signals",
        "undercurrent config example --config a.yaml",
        "undercurrent --config a.yaml run --config b.yaml",
        "undercurrent doctor --duration 5s",
        "undercurrent --config",
        "undercurrent config",
    ]));
}

#[test]
fn help_texts() {
    let pages = [
        "",
        "run ",
        "doctor ",
        "why ",
        "flamegraph ",
        "signals ",
        "config ",
        "config example ",
        "config schema ",
        "config check ",
        "config show ",
        "completions ",
        "man ",
    ];
    let pages = pages
        .map(|command| format!("$ undercurrent {command}--help\n{}", help(&format!("undercurrent {command}--help"))));
    insta::assert_snapshot!(pages.join("\n"));
    assert_eq!(help("undercurrent --version"), format!("undercurrent {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn settings_come_from_file_and_flags() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, "interval: 3s\nmemory_limit: 32MiB\n").expect("written");
    let line = format!("undercurrent --config {} --interval 2s", path.display());
    let Command::Run(run) = command(&line) else { panic!("a run") };
    let (settings, ignored) = run.settings(&|_| None).expect("settings");
    assert_eq!(settings.interval.to_string(), "2s");
    assert_eq!(settings.memory_limit.to_string(), "32MiB");
    assert!(ignored.is_empty());

    let missing = Run { config: Some(folder.path().join("none.yaml")), ..Run::default() };
    assert!(matches!(missing.settings(&|_| None), Err(ConfigError::Missing { .. })));
}

#[test]
fn signals_of_the_table_are_those_of_the_registry() {
    let selected = |arguments: &str| {
        let Command::Run(run) = command(&format!("undercurrent run {arguments}")) else { panic!("a run") };
        run.selection
    };
    assert_eq!(selected("--interval 1s"), Selection::default());
    let tcp = selected("--signal tcp_rtt --signal tcp_retransmits --workload web --sort wait");
    let metrics = Some(vec!["undercurrent.tcp.rtt", "undercurrent.tcp.retransmits"]);
    let (workload, sort) = (Some("web".to_owned()), Some("wait".to_owned()));
    assert_eq!(tcp, Selection { workload, metrics, without_spans: true, sort });
    assert!(!selected(&format!("--signal {SLOW_PACKETS}")).without_spans);
    assert!(REGISTRY.iter().any(|entry| entry.name == SLOW_PACKETS && entry.metrics.is_empty()));
    assert!(parse("undercurrent run --signal tcp".split(' ')).is_err());
}
