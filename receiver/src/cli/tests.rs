//! Tests of valid and invalid command lines, and of their messages.

use super::*;
use crate::doctor::FailOn;

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
    let doctor = DoctorArguments { json: true, probe: true, fail_on: FailOn::default(), config: None };
    assert_eq!(command("undercurrent doctor --json --probe"), Command::Doctor(doctor));
    let Command::Doctor(gate) = command("undercurrent doctor --fail-on unusable") else { panic!("doctor") };
    assert_eq!(gate.fail_on, FailOn::Unusable);
    assert_eq!(command("undercurrent signals"), Command::Signals(SignalsArguments { json: false }));
    assert_eq!(command("undercurrent config schema"), Command::Config(ConfigFile::Schema));
    assert_eq!(command("undercurrent config example"), Command::Config(ConfigFile::Example));
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
    ]), @"
    $ undercurrent --interval 0
    error: invalid value '0' for '--interval <DURATION>': `0` is too short: the shortest interval is 100ms

    For more information, try '--help'.

    $ undercurrent run --interval 0s
    error: invalid value '0s' for '--interval <DURATION>': `0s` is too short: the shortest interval is 100ms

    For more information, try '--help'.

    $ undercurrent run --interval 50ms
    error: invalid value '50ms' for '--interval <DURATION>': `50ms` is too short: the shortest interval is 100ms

    For more information, try '--help'.

    $ undercurrent run --interval -1s
    error: invalid value '-1s' for '--interval <DURATION>': `-1s` is negative: a duration is above zero, for example `10s`

    For more information, try '--help'.

    $ undercurrent run --interval 10
    error: invalid value '10' for '--interval <DURATION>': `10` has no unit: write a number and a unit, for example `10s` or `500ms`

    For more information, try '--help'.

    $ undercurrent --duration -5s
    error: invalid value '-5s' for '--duration <DURATION>': `-5s` is negative: a duration is above zero, for example `10s`

    For more information, try '--help'.

    $ undercurrent run --duration=-5s
    error: invalid value '-5s' for '--duration <DURATION>': `-5s` is negative: a duration is above zero, for example `10s`

    For more information, try '--help'.

    $ undercurrent run --duration 0s
    error: invalid value '0s' for '--duration <DURATION>': `0s` is zero: a duration is above zero, for example `10s`

    For more information, try '--help'.

    $ undercurrent run --duration --interval 1s
    error: unexpected argument '1s' found

    Usage: undercurrent run [OPTIONS]

    For more information, try '--help'.

    $ undercurrent run --interval
    error: a value is required for '--interval <DURATION>' but none was supplied

    For more information, try '--help'.
    ");
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
    ]), @"
    $ undercurrent --output tabel
    error: invalid value 'tabel' for '--output <OUTPUT>': unknown output `tabel` (did you mean `table`?): the outputs are `table`, `json`, `json=FILE` and `otlp`

    For more information, try '--help'.

    $ undercurrent --output table=out.txt
    error: invalid value 'table=out.txt' for '--output <OUTPUT>': `table` takes no file, `out.txt` was given: for a file use `json=FILE`

    For more information, try '--help'.

    $ undercurrent --output otlp=http://localhost:4317
    error: invalid value 'otlp=http://localhost:4317' for '--output <OUTPUT>': `otlp` takes no file or address, `http://localhost:4317` was given: the collector's address is `otlp.endpoint` in the configuration file or OTEL_EXPORTER_OTLP_ENDPOINT

    For more information, try '--help'.

    $ undercurrent --output json=
    error: invalid value 'json=' for '--output <OUTPUT>': `json=` names no file: write `json=FILE`, or `json` for standard output

    For more information, try '--help'.

    $ undercurrent --output otlp --output otlp
    error: output `otlp` is given twice: leave one out

    Usage: undercurrent [OPTIONS]
           undercurrent <COMMAND>

    For more information, try '--help'.

    $ undercurrent run --output table --output json
    error: outputs `table` and `json` both write to standard output: keep one, or give JSON a file (`json=FILE`)

    Usage: undercurrent [OPTIONS]
           undercurrent <COMMAND>

    For more information, try '--help'.
    ");
}

#[test]
fn misplaced_arguments_are_refused() {
    insta::assert_snapshot!(refusals(&[
        "undercurrent rnu",
        "undercurrent --intervall 1s",
        "undercurrent --interval 1s --interval 2s",
        "undercurrent --interval 1s doctor",
        "undercurrent doctor --duration 5s",
        "undercurrent --config",
        "undercurrent config",
    ]), @"
    $ undercurrent rnu
    error: unrecognized subcommand 'rnu'

    Usage: undercurrent [OPTIONS]
           undercurrent <COMMAND>

    For more information, try '--help'.

    $ undercurrent --intervall 1s
    error: unexpected argument '--intervall' found

      tip: a similar argument exists: '--interval'

    Usage: undercurrent --interval <DURATION>

    For more information, try '--help'.

    $ undercurrent --interval 1s --interval 2s
    error: the argument '--interval <DURATION>' cannot be used multiple times

    Usage: undercurrent [OPTIONS]
           undercurrent <COMMAND>

    For more information, try '--help'.

    $ undercurrent --interval 1s doctor
    error: the subcommand 'doctor' cannot be used with '--interval <DURATION>'

    Usage: undercurrent [OPTIONS]
           undercurrent <COMMAND>

    For more information, try '--help'.

    $ undercurrent doctor --duration 5s
    error: unexpected argument '--duration' found

    Usage: undercurrent doctor [OPTIONS]

    For more information, try '--help'.

    $ undercurrent --config
    error: a value is required for '--config <FILE>' but none was supplied

    For more information, try '--help'.

    $ undercurrent config
    Print an example configuration file, or the JSON schema

    Usage: undercurrent config <COMMAND>

    Commands:
      example  Print an example with every setting in comments
      schema   Print the JSON schema for editors
      help     Print this message or the help of the given subcommand(s)

    Options:
      -h, --help  Print help
    ");
}

#[test]
fn help_texts() {
    let pages = ["", "run ", "doctor ", "signals ", "config ", "config example ", "config schema "];
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

    let missing = Run { config: Some(folder.path().join("none.yaml")), flags: Flags::default() };
    assert!(matches!(missing.settings(&|_| None), Err(ConfigError::Missing { .. })));
}
