//! The folder for the guest's results.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tempfile::TempDir;

/// A folder that the guest can write to. Its path is equal on host and guest.
pub enum Share {
    /// A folder of the user.
    Given(PathBuf),
    /// A temporary folder of this run.
    New(TempDir),
}

impl Share {
    /// Opens `given`, created if it is missing, or creates a temporary folder.
    pub fn open(given: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = given else {
            let new = tempfile::Builder::new().prefix("undercurrent-share-").tempdir();
            return Ok(Self::New(new.context("cannot create a folder to share with the guest")?));
        };
        fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self::Given(path.canonicalize().with_context(|| format!("cannot open {}", path.display()))?))
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::New(folder) => folder.path(),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Self::New(folder) = self
            && fs::read_dir(folder.path()).is_ok_and(|mut entries| entries.next().is_some())
        {
            folder.disable_cleanup(true);
            eprintln!("the guest left files in {}", folder.path().display());
        }
    }
}
