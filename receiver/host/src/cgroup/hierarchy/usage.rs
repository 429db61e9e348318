//! CPU time and CPU throttling by cgroup.

use std::{fs, io, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Hierarchy, Version, is_gone, mounts::Mount};
use crate::cgroup::{CgroupId, CgroupPath};

/// The file with CPU time on version 2, and with throttling on both versions.
const STATISTICS: &str = "cpu.stat";

/// The reason why CPU time or throttling of a cgroup is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum UsageError {
    /// The cgroup has been removed, or another cgroup has its path.
    #[error("the cgroup is gone")]
    Gone,
    /// The kernel does not count it, or the file with the count is not mounted.
    #[error("the kernel does not count it, or no mounted hierarchy has the count")]
    NotKept,
    /// The file cannot be read.
    #[error("cannot read {}: {reason}", file.display())]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The error of the read.
        reason: String,
    },
    /// The file has an unknown format.
    #[error("{} has an unknown format: check whether another file system is mounted there", file.display())]
    Malformed {
        /// The path of the file.
        file: PathBuf,
    },
}

impl Hierarchy {
    /// Returns the cumulative CPU time of a cgroup and its descendants, including removed descendants. Reads
    /// `usage_usec` of `cpu.stat` on version 2, and `cpuacct.usage` on version 1.
    ///
    /// # Errors
    /// [`UsageError`]. [`UsageError::Gone`] is expected when cgroups are removed.
    pub fn usage(&self, id: CgroupId, path: &CgroupPath) -> Result<Duration, UsageError> {
        let (name, parse): (_, fn(&str) -> Option<Duration>) = match self.version {
            Version::V1 => ("cpuacct.usage", nanoseconds),
            Version::V2 => (STATISTICS, usage_usec),
        };
        self.count(self.accounting.as_ref(), id, path, name, parse)
    }

    /// Returns the cumulative time for which the CPU quota of the cgroup throttled its tasks and the tasks of its
    /// descendants. The time is a sum over CPUs and increases when the kernel unthrottles the cgroup. `None` if no
    /// quota has ever applied. Reads `cpu.stat`: `throttled_usec` on version 2, `throttled_time` on version 1.
    ///
    /// # Errors
    /// [`UsageError`], with the conditions of [`Self::usage`].
    pub fn throttled(&self, id: CgroupId, path: &CgroupPath) -> Result<Option<Duration>, UsageError> {
        let parse: fn(&str) -> Option<Option<Duration>> = match self.version {
            Version::V1 => |text| throttled(text, "throttled_time", Duration::from_nanos),
            Version::V2 => |text| throttled(text, "throttled_usec", Duration::from_micros),
        };
        self.count(Some(&self.tree), id, path, STATISTICS, parse)
    }

    /// Reads and parses one file of a cgroup.
    pub(super) fn count<T>(
        &self,
        mount: Option<&Mount>,
        id: CgroupId,
        path: &CgroupPath,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, UsageError> {
        let directory = mount.and_then(|mount| mount.directory(path)).ok_or(UsageError::NotKept)?;
        let file = directory.join(name);
        let text = fs::read_to_string(&file);
        // The id is checked after the read: if it matches now, it also matched during the read, because the kernel does
        // not reuse ids soon.
        match (self.id(path), text) {
            (Ok(now), _) if now != id => Err(UsageError::Gone),
            (Err(error), _) if is_gone(&error) => Err(UsageError::Gone),
            (Err(error), _) => Err(unreadable(directory, &error)),
            (_, Err(error)) if is_gone(&error) => Err(UsageError::NotKept),
            (_, Err(error)) => Err(unreadable(file, &error)),
            (_, Ok(text)) => parse(&text).ok_or(UsageError::Malformed { file }),
        }
    }
}

fn unreadable(file: PathBuf, error: &io::Error) -> UsageError {
    UsageError::Unreadable { file, reason: error.to_string() }
}

/// Parses `cpuacct.usage`.
fn nanoseconds(text: &str) -> Option<Duration> {
    text.trim_end().parse().ok().map(Duration::from_nanos)
}

/// Parses the CPU time of `cpu.stat`.
fn usage_usec(text: &str) -> Option<Duration> {
    value_of(text, "usage_usec")?.parse().ok().map(Duration::from_micros)
}

/// Parses the throttled time of `cpu.stat`. Returns `Some(None)` if no quota period has passed, or if the controller is
/// disabled (version 2).
fn throttled(text: &str, name: &str, unit: fn(u64) -> Duration) -> Option<Option<Duration>> {
    match value_of(text, "nr_periods") {
        None | Some("0") => Some(None),
        Some(_) => value_of(text, name)?.parse().ok().map(|time| Some(unit(time))),
    }
}

/// Returns the value on the line that begins with a name.
fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read_in_their_units() {
        assert_eq!(nanoseconds("1542002427193\n"), Some(Duration::from_nanos(1_542_002_427_193)));
        let stat = "usage_usec 1515062428\nuser_usec 1226568969\nsystem_usec 288493458\nnice_usec 0\n";
        assert_eq!(usage_usec(stat), Some(Duration::from_micros(1_515_062_428)));
    }

    #[test]
    fn throttled_time_is_read_if_a_quota_was_ever_in_force() {
        let stat =
            |periods, time: &str| format!("usage_usec 7\nnr_periods {periods}\nnr_throttled 2\n{time}\nnr_bursts 0\n");
        let v1 = |text: &str| throttled(text, "throttled_time", Duration::from_nanos);
        assert_eq!(v1(&stat(3, "throttled_time 1834336217")), Some(Some(Duration::from_nanos(1_834_336_217))));
        let v2 = |text: &str| throttled(text, "throttled_usec", Duration::from_micros);
        assert_eq!(v2(&stat(3, "throttled_usec 1834336")), Some(Some(Duration::from_micros(1_834_336))));
        assert_eq!(v2(&stat(3, "throttled_usec 0")), Some(Some(Duration::ZERO)));
        assert_eq!(v2(&stat(0, "throttled_usec 0")), Some(None));
        assert_eq!(v2("usage_usec 7\nuser_usec 7\n"), Some(None));
        for mistake in ["throttled_time 5", "throttled_usec -5", "throttled_usec", "throttled_usecs 5"] {
            assert_eq!(v2(&stat(1, mistake)), None, "{mistake}");
        }
    }

    #[test]
    fn malformed_usage_is_rejected() {
        for text in
            ["", "usage_usec", "usage_usec -1", "usage_usec 1 2", "user_usec 5", "usage_usec 18446744073709551616"]
        {
            assert_eq!(usage_usec(text), None, "{text}");
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }
}
