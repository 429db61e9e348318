//! The command line: what was asked for, checked as far as that goes without looking at the machine.

mod arguments;
pub mod catalogue;

use std::{ffi::OsString, path::PathBuf};

use clap::{CommandFactory, FromArgMatches, error::ErrorKind};

use crate::{
    config::{ConfigError, File, Flags, Outputs, Settings},
    environment::{Environment, Ignored},
};
use arguments::{Arguments, RunArguments, Subcommand};

pub use arguments::{ConfigFile, DoctorArguments, SignalsArguments};

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Measure and export.
    Run(Run),
    /// Say what works on this machine.
    Doctor(DoctorArguments),
    /// List what can be measured.
    Signals(SignalsArguments),
    /// Print something about the configuration file.
    Config(ConfigFile),
}

/// How to measure and export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// What wins over it.
    pub flags: Flags,
}

impl Run {
    /// What is in force, and the environment variables to warn of.
    ///
    /// # Errors
    /// Where the configuration file cannot be used.
    pub fn settings(self, environment: Environment<'_>) -> Result<(Settings, Vec<Ignored>), ConfigError> {
        let file = self.config.as_deref().map_or_else(|| Ok(File::default()), File::load)?;
        Ok(Settings::resolve(self.flags, environment, file))
    }
}

/// The command of a command line, whose first word is the program's name.
///
/// # Errors
/// A message for people, help and version included; `exit()` prints it and ends with status 2, or 0 for the latter two.
pub fn parse<Words>(words: Words) -> Result<Command, clap::Error>
where
    Words: IntoIterator<Item: Into<OsString> + Clone>,
{
    let mut command = Arguments::command();
    let matches = command.try_get_matches_from_mut(words)?;
    let arguments = Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok(match arguments.subcommand {
        None => Command::Run(run(arguments.run, &mut command)?),
        Some(Subcommand::Run(run_arguments)) => Command::Run(run(run_arguments, &mut command)?),
        Some(Subcommand::Doctor(doctor)) => Command::Doctor(doctor),
        Some(Subcommand::Signals(signals)) => Command::Signals(signals),
        Some(Subcommand::Config { file }) => Command::Config(file),
    })
}

fn run(arguments: RunArguments, command: &mut clap::Command) -> Result<Run, clap::Error> {
    let outputs = match arguments.output {
        outputs if outputs.is_empty() => None,
        outputs => Some(Outputs::try_from(outputs).map_err(|error| command.error(ErrorKind::ArgumentConflict, error))?),
    };
    let flags = Flags { interval: arguments.interval, duration: arguments.duration, outputs };
    Ok(Run { config: arguments.config, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn other_commands_are_told_apart() {
        let doctor = DoctorArguments { json: true, probe: true, config: None };
        assert_eq!(command("undercurrent doctor --json --probe"), Command::Doctor(doctor));
        assert_eq!(command("undercurrent signals"), Command::Signals(SignalsArguments { json: false }));
        assert_eq!(command("undercurrent config schema"), Command::Config(ConfigFile::Schema));
        assert_eq!(command("undercurrent config example"), Command::Config(ConfigFile::Example));
    }

    #[test]
    fn durations_are_refused_for_what_they_are() {
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
        ]), @"");
    }

    #[test]
    fn outputs_are_refused_for_what_they_are() {
        insta::assert_snapshot!(refusals(&[
            "undercurrent --output tabel",
            "undercurrent --output table=out.txt",
            "undercurrent --output otlp=http://localhost:4317",
            "undercurrent --output json=",
            "undercurrent --output otlp --output otlp",
            "undercurrent run --output table --output json",
        ]), @"");
    }

    #[test]
    fn words_out_of_place_are_refused() {
        insta::assert_snapshot!(refusals(&[
            "undercurrent rnu",
            "undercurrent --intervall 1s",
            "undercurrent --interval 1s --interval 2s",
            "undercurrent --interval 1s doctor",
            "undercurrent doctor --duration 5s",
            "undercurrent --config",
            "undercurrent config",
        ]), @"");
    }

    #[test]
    fn help_says_everything() {
        insta::assert_snapshot!(help("undercurrent --help"), @"");
        insta::assert_snapshot!(help("undercurrent doctor --help"), @"");
        insta::assert_snapshot!(help("undercurrent signals --help"), @"");
        insta::assert_snapshot!(help("undercurrent config --help"), @"");
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
}
