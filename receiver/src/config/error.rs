//! What can be wrong with a configuration file, said so that the reader can mend it.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use super::{load::SIZE_LIMIT, problem::problem};

/// A place in a file, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its line.
    pub line: u64,
    /// Its column, in characters.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No such file.
    #[error(
        "{}: no such file: check the path, or write a first one with `undercurrent config example`",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A directory.
    #[error("{}: is a directory: name the file in it", path.display())]
    Directory {
        /// The file.
        path: PathBuf,
    },
    /// Not ours to read.
    #[error("{}: permission denied: let the user that runs undercurrent read it", path.display())]
    Denied {
        /// The file.
        path: PathBuf,
    },
    /// Any other failure to read it.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// More than [`SIZE_LIMIT`].
    #[error("{}: is larger than {} KiB: this is no configuration file, check the path", path.display(), SIZE_LIMIT >> 10)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Bytes that are no text.
    #[error("{}:{position}: is no UTF-8 text: this is no YAML file, check the path or save it as UTF-8", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first byte that is no text.
        position: Position,
    },
    /// No YAML, or a key or value that means nothing.
    #[error("{}: {problem}", match position {
        Some(position) => format!("{}:{position}", path.display()),
        None => path.display().to_string(),
    })]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Where, if that is known.
        position: Option<Position>,
        /// What is wrong and what to do.
        problem: String,
    },
}

impl ConfigError {
    pub(super) fn from_yaml(path: &Path, text: &str, error: &serde_saphyr::Error) -> Self {
        let error = error.without_snippet();
        let position = error.location().map(|location| Position { line: location.line(), column: location.column() });
        Self::Invalid { path: path.to_owned(), position, problem: problem(error, position.map(|at| scalar(text, at))) }
    }
}

/// The value that begins at a position, as written.
fn scalar(text: &str, position: Position) -> String {
    let skip = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1);
    let line = text.lines().nth(skip(position.line)).unwrap_or_default();
    let rest: String = line.chars().skip(skip(position.column)).collect();
    let end = rest.find([',', ']', '}', '#']).unwrap_or(rest.len());
    rest[..end].trim_end().to_owned()
}
