//! The command line, parsed and validated without access to the machine.

mod arguments;
pub mod catalogue;
pub mod exit;

use std::{ffi::OsString, path::PathBuf};

use clap::{CommandFactory, FromArgMatches, error::ErrorKind};

use crate::{
    config::{ConfigError, File, Flags, Settings},
    environment::{Environment, Ignored},
    options::Outputs,
};
use arguments::{Arguments, RunArguments, Subcommand};

pub use arguments::{ConfigFile, DoctorArguments, SignalsArguments};

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Measure and export.
    Run(Run),
    /// Check the machine.
    Doctor(DoctorArguments),
    /// List the signals.
    Signals(SignalsArguments),
    /// Print an example configuration file or the schema.
    Config(ConfigFile),
}

/// Arguments of `run`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Flags, which take precedence over the file.
    pub flags: Flags,
}

impl Run {
    /// Returns the effective settings, and the environment variables with invalid values.
    ///
    /// # Errors
    /// If the configuration file is invalid or cannot be read.
    pub fn settings(self, environment: Environment<'_>) -> Result<(Settings, Vec<Ignored>), ConfigError> {
        let file = self.config.as_deref().map_or_else(|| Ok(File::default()), File::load)?;
        Ok(Settings::resolve(self.flags, environment, file))
    }
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
    Ok(match arguments.subcommand {
        None => Command::Run(run(arguments.run, &mut command)?),
        Some(Subcommand::Run(run_arguments)) => Command::Run(run(run_arguments, &mut command)?),
        Some(Subcommand::Doctor(doctor)) => Command::Doctor(doctor),
        Some(Subcommand::Signals(signals)) => Command::Signals(signals),
        Some(Subcommand::Config { file }) => Command::Config(file),
    })
}

fn run(arguments: RunArguments, command: &mut clap::Command) -> Result<Run, clap::Error> {
    let RunArguments { config, interval, duration, output, sampling, avoid } = arguments;
    let outputs = match output {
        outputs if outputs.is_empty() => None,
        outputs => Some(Outputs::try_from(outputs).map_err(|error| command.error(ErrorKind::ArgumentConflict, error))?),
    };
    let flags = Flags { interval, duration, outputs, sampling, avoid };
    Ok(Run { config, flags })
}

#[cfg(test)]
mod tests;
