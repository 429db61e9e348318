//! The command line: what was asked for, checked as far as that goes without looking at the machine.

mod arguments;
pub mod catalogue;

use std::{ffi::OsString, path::PathBuf};

use clap::{CommandFactory, FromArgMatches, error::ErrorKind};

use crate::{
    config::{ConfigError, File, Flags, Settings},
    environment::{Environment, Ignored},
    options::Outputs,
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
