//! Errors of the configuration file. Each message names the position, the problem and the remedy.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use super::{file::SIZE_LIMIT, problem::problem};
use crate::options::ListenAddress;

/// A position in a file, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// Its column, in characters.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file does not exist.
    #[error(
        "{}: no such file: check the path, or write a first one with `undercurrent config example`",
        path.display()
    )]
    Missing {
        /// The path of the file.
        path: PathBuf,
    },
    /// The path is a directory.
    #[error("{}: is a directory: name the file in it", path.display())]
    Directory {
        /// The path of the directory.
        path: PathBuf,
    },
    /// The process has no permission to read the file.
    #[error("{}: permission denied: let the user that runs undercurrent read it", path.display())]
    Denied {
        /// The path of the file.
        path: PathBuf,
    },
    /// Another read error.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is larger than [`SIZE_LIMIT`].
    #[error("{}: is larger than {} KiB: this is no configuration file, check the path", path.display(), SIZE_LIMIT >> 10)]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file is not UTF-8 text.
    #[error("{}:{position}: is no UTF-8 text: this is no YAML file, check the path or save it as UTF-8", path.display())]
    NotText {
        /// The path of the file.
        path: PathBuf,
        /// The position of the first invalid byte.
        position: Position,
    },
    /// The file is not valid YAML, or contains an unknown key or an invalid value.
    #[error("{}: {problem}", match position {
        Some(position) => format!("{}:{position}", path.display()),
        None => path.display().to_string(),
    })]
    Invalid {
        /// The path of the file.
        path: PathBuf,
        /// The position, if the parser reports one.
        position: Option<Position>,
        /// The problem and its remedy.
        problem: String,
    },
    /// Other hosts could read the pages without a token.
    #[error("other hosts can reach {address}: name a file with a token in `listen.token_file`, or listen on 127.0.0.1")]
    Exposed {
        /// The address of the pages.
        address: ListenAddress,
    },
}

impl ConfigError {
    pub(super) fn from_yaml(path: &Path, text: &str, error: &serde_saphyr::Error) -> Self {
        let error = error.without_snippet();
        let position = error.location().map(|location| Position { line: location.line(), column: location.column() });
        Self::Invalid { path: path.to_owned(), position, problem: problem(error, position.map(|at| scalar(text, at))) }
    }
}

/// Returns the text of the value at a position.
fn scalar(text: &str, position: Position) -> String {
    let skip = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1);
    let line = text.lines().nth(skip(position.line)).unwrap_or_default();
    let rest: String = line.chars().skip(skip(position.column)).collect();
    let end = rest.find([',', ']', '}', '#']).unwrap_or(rest.len());
    rest[..end].trim_end().to_owned()
}
