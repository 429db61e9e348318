//! The command line, parsed and validated without access to the machine.

mod arguments;
pub mod catalogue;
mod man;

use std::{ffi::OsString, path::PathBuf};

use clap::{ArgMatches, Args as _, CommandFactory, FromArgMatches, error::ErrorKind, parser::ValueSource};

use crate::{
    config::{EXAMPLE, Flags, Run, schema},
    export::view::Selection,
    options::Outputs,
    signals::{Entry, REGISTRY},
};
use arguments::{Arguments, ConfigCommand, RunArguments, Subcommand};

pub use arguments::{DoctorArguments, FlamegraphArguments, GraphArguments, SignalsArguments, WhyArguments};

/// The option that may precede a subcommand.
const CONFIG: &str = "config";

/// The signal without metrics, which has spans.
const SLOW_PACKETS: &str = "slow_packets";

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Measure and export.
    Run(Run),
    /// Check the machine.
    Doctor(DoctorArguments),
    /// Name the likely cause of a workload's latency.
    Why(WhyArguments),
    /// Draw the functions of the network stack.
    Flamegraph(FlamegraphArguments),
    /// Draw the calls between services.
    Graph(GraphArguments),
    /// List the signals.
    Signals(SignalsArguments),
    /// Print a text.
    Print(String),
    /// Check a configuration file.
    CheckConfig(PathBuf),
    /// Print the effective settings with their origins.
    ShowConfig(Run),
}

/// Parses a command line. The first word is the name of the program.
///
/// # Errors
/// If the command line is invalid, or requests help or the version. `exit()` prints the message, and ends with
/// status 2, or with 0 for help and version.
pub fn parse<Words>(words: Words) -> Result<Command, clap::Error>
where
    Words: IntoIterator<Item: Into<OsString> + Clone>,
{
    let mut command = Arguments::command();
    let matches = command.try_get_matches_from_mut(words)?;
    let arguments = Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    check_placement(&matches).map_err(|message| command.error(ErrorKind::ArgumentConflict, message))?;
    let Arguments { run: before, subcommand } = arguments;
    Ok(match subcommand {
        None => Command::Run(run(before, &mut command)?),
        Some(Subcommand::Run(arguments)) => {
            let config = arguments.config.or(before.config);
            Command::Run(run(RunArguments { config, ..arguments }, &mut command)?)
        }
        Some(Subcommand::Doctor(arguments)) => {
            let config = arguments.config.or(before.config);
            Command::Doctor(DoctorArguments { config, ..arguments })
        }
        Some(Subcommand::Why(arguments)) => {
            let config = arguments.config.or(before.config);
            Command::Why(WhyArguments { config, ..arguments })
        }
        Some(Subcommand::Flamegraph(arguments)) => {
            let config = arguments.config.or(before.config);
            Command::Flamegraph(FlamegraphArguments { config, ..arguments })
        }
        Some(Subcommand::Graph(arguments)) => Command::Graph(arguments),
        Some(Subcommand::Signals(arguments)) => Command::Signals(arguments),
        Some(Subcommand::Completions { shell }) => Command::Print(completions(shell, &mut command)),
        Some(Subcommand::Man) => Command::Print(man::page(command)),
        Some(Subcommand::Config { command: of_config }) => match of_config {
            ConfigCommand::Example => Command::Print(EXAMPLE.to_owned()),
            ConfigCommand::Schema => Command::Print(format!("{:#}\n", schema())),
            ConfigCommand::Check { file } => Command::CheckConfig(file),
            ConfigCommand::Show(arguments) => Command::ShowConfig(run(*arguments, &mut command)?),
        },
    })
}

fn completions(shell: clap_complete::Shell, command: &mut clap::Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "undercurrent", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Checks the options before a subcommand: only `--config` may precede one, if the subcommand has this option too.
fn check_placement(matches: &ArgMatches) -> Result<(), String> {
    let Some((subcommand, its_matches)) = matches.subcommand() else { return Ok(()) };
    let is_given = |matches: &ArgMatches, option: &str| {
        matches.try_contains_id(option).is_ok() && matches.value_source(option) == Some(ValueSource::CommandLine)
    };
    let options = RunArguments::augment_args(clap::Command::new(""));
    let mut given = options.get_arguments().map(|option| option.get_id().as_str()).filter(|id| is_given(matches, id));
    match given.find(|option| *option != CONFIG) {
        Some(option) if subcommand == "run" => Err(format!("write `--{option}` after `run`")),
        Some(option) => Err(format!("`--{option}` is an option of `run`, not of `{subcommand}`")),
        None if !is_given(matches, CONFIG) => Ok(()),
        None if its_matches.try_contains_id(CONFIG).is_err() => {
            Err(format!("`{subcommand}` reads no configuration file: leave `--config` out"))
        }
        None if is_given(its_matches, CONFIG) => Err("`--config` is given twice: leave one out".to_owned()),
        None => Ok(()),
    }
}

fn run(arguments: RunArguments, command: &mut clap::Command) -> Result<Run, clap::Error> {
    let RunArguments {
        config,
        interval,
        duration,
        output,
        listen,
        level,
        sampling,
        avoid,
        sysfs_root,
        workload,
        signal,
        sort,
    } = arguments;
    let outputs = match output {
        outputs if outputs.is_empty() => None,
        outputs => Some(Outputs::try_from(outputs).map_err(|error| command.error(ErrorKind::ArgumentConflict, error))?),
    };
    let flags = Flags { interval, duration, outputs, listen, level, sampling, avoid, sysfs_root };
    Ok(Run { config, flags, selection: selection(workload, &signal, sort) })
}

/// Returns the displayed part of the table. The signals have registered names.
fn selection(workload: Option<String>, signals: &[String], sort: Option<String>) -> Selection {
    let is_chosen = |entry: &&&Entry| signals.iter().any(|signal| signal == entry.name);
    let metrics =
        || REGISTRY.iter().filter(is_chosen).flat_map(|entry| entry.metrics).map(|metric| metric.name).collect();
    let is_whole = signals.is_empty();
    Selection {
        workload,
        metrics: (!is_whole).then(metrics),
        without_spans: !is_whole && !signals.iter().any(|signal| signal == SLOW_PACKETS),
        sort,
    }
}

#[cfg(test)]
mod tests;
