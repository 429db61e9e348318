//! File system paths.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An absolute path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("title" = "path", "pattern" = "^/"))]
pub struct AbsolutePath(PathBuf);

impl AbsolutePath {
    /// Creates the path of a constant, which must begin with `/`.
    pub fn of_constant(path: &'static str) -> Self {
        debug_assert!(path.starts_with('/'), "{path}");
        Self(path.into())
    }

    /// Returns the path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl TryFrom<String> for AbsolutePath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.starts_with('/') {
            Ok(Self(text.into()))
        } else {
            Err(format!("`{text}` is no absolute path: write one that begins with `/`"))
        }
    }
}

impl From<AbsolutePath> for String {
    fn from(path: AbsolutePath) -> Self {
        path.to_string()
    }
}

impl fmt::Display for AbsolutePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}
