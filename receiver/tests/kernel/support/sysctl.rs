//! Settings of the kernel that change for a time.

use std::{fs, path::PathBuf};

/// A file below `/proc/sys` with another value. The earlier value returns when this one is dropped.
pub struct Sysctl {
    path: PathBuf,
    before: String,
}

impl Sysctl {
    /// Sets the file of this name below `/proc/sys`: `net/core/dev_weight` is one.
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
