//! Temporary changes of kernel settings.

use std::{fs, path::PathBuf};

/// A file below `/proc/sys` with another value. Dropping this value restores the earlier one.
pub struct Sysctl {
    path: PathBuf,
    before: String,
}

impl Sysctl {
    /// Sets a file below `/proc/sys`, for example `net/core/dev_weight`.
    pub fn set(name: &str, value: &str) -> Self {
        let path = PathBuf::from("/proc/sys").join(name);
        let before = fs::read_to_string(&path).unwrap();
        fs::write(&path, value).unwrap();
        Self { path, before }
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.before) {
            eprintln!("{} keeps another value: {error}", self.path.display());
        }
    }
}
