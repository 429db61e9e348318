//! The configuration of a run: a file and flags.

use std::path::PathBuf;

use super::{ConfigError, File, Flags, Listen, Settings, Shown};
use crate::{
    environment::{Environment, Ignored},
    export::view::Selection,
};

/// The configuration of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Flags, which take precedence over the file.
    pub flags: Flags,
    /// The displayed part of the table.
    pub selection: Selection,
}

impl Run {
    /// Returns the effective settings, and the environment variables with invalid values.
    ///
    /// # Errors
    /// If the configuration file is invalid or cannot be read, or if other hosts could read the pages without a token.
    pub fn settings(self, environment: Environment<'_>) -> Result<(Settings, Vec<Ignored>), ConfigError> {
        let file = self.config.as_deref().map_or_else(|| Ok(File::default()), File::load)?;
        let (settings, ignored) = Settings::resolve(self.flags, environment, file);
        let Listen { address, token_file } = &settings.listen;
        match address {
            Some(address) if address.is_exposed() && token_file.is_none() => {
                Err(ConfigError::Exposed { address: *address })
            }
            _ => Ok((settings, ignored)),
        }
    }

    /// Returns the effective settings as text, each with its origin.
    ///
    /// # Errors
    /// If the configuration file is invalid or cannot be read.
    pub fn shown(&self, environment: Environment<'_>) -> Result<String, ConfigError> {
        let content = self.config.as_deref().map(|path| Ok((path, File::read(path)?))).transpose()?;
        let file = content.as_ref().map(|(path, content)| (*path, content.as_slice()));
        let parsed = file.map_or_else(|| Ok(File::default()), |(path, content)| File::parse(path, content))?;
        let (settings, ignored) = Settings::resolve(self.flags.clone(), environment, parsed);
        let shown = Shown { flags: &self.flags, environment, file, settings: &settings, ignored: &ignored };
        Ok(shown.text())
    }
}
