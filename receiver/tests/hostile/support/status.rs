//! Reads `/proc/PID/status` of the sidecar's processes.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use caps::{Capability, CapsHashSet};

use super::processes::family;

/// The status of a process by field.
pub struct Status(BTreeMap<String, String>);

impl Status {
    /// Returns `None` if the process has ended.
    pub fn of_process(process: u32) -> Option<Self> {
        Self::read(&PathBuf::from(format!("/proc/{process}")))
    }

    /// Returns the status of the process or thread with this directory.
    pub fn read(directory: &Path) -> Option<Self> {
        let text = fs::read_to_string(directory.join("status")).ok()?;
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Some(Self(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()))
    }

    /// Returns a field as text.
    pub fn text(&self, field: &str) -> &str {
        &self.0[field]
    }

    /// Returns the first number of a field.
    pub fn number(&self, field: &str) -> u64 {
        self.text(field).split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Returns a set of capabilities.
    pub fn capabilities(&self, field: &str) -> CapsHashSet {
        let bits = u64::from_str_radix(self.text(field), 16).unwrap();
        caps::all().into_iter().filter(|capability: &Capability| bits & capability.bitmask() != 0).collect()
    }
}

/// Returns the running process with this name among a sidecar's processes: `undercurrent`, `uc-loader` or
/// `uc-reader`.
pub fn part(sidecar: u32, name: &str) -> Option<u32> {
    let is = |status: Status| status.text("Name") == name && !status.text("State").starts_with('Z');
    family(sidecar).into_iter().rfind(|process| Status::of_process(*process).is_some_and(is))
}

/// Returns the number of a process's threads in uninterruptible sleep (`D`).
pub fn stuck(process: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let is_stuck = |status: &Status| status.text("State").starts_with('D');
    threads.filter_map(|thread| Status::read(&thread.path())).filter(is_stuck).count()
}
