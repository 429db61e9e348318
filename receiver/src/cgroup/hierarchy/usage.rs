//! What the kernel counts by cgroup: CPU time, and time in which a CPU quota held tasks.

use std::{fs, io, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Hierarchy, Version, is_gone, mounts::Mount};
use crate::cgroup::{CgroupId, CgroupPath};

/// Where CPU time stands on version 2, and what came of a quota on both versions.
const STATISTICS: &str = "cpu.stat";

/// Why a cgroup's CPU time, or what came of its quota, is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum UsageError {
    /// The cgroup is not there any more, or another one has its path.
    #[error("the cgroup is gone")]
    Gone,
    /// The kernel does not count it, or not where this process could read it.
    #[error("the kernel keeps no such count of it that is mounted here")]
    NotKept,
    /// The file cannot be read.
    #[error("cannot read {}: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file is none of the kernel's.
    #[error("{} is not what any known kernel writes: is another file system mounted there?", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
    },
}

impl Hierarchy {
    /// CPU time that a cgroup has used since it was made, with everything below it, and what was removed from there: a sum
    /// that grows. From `usage_usec` in `cpu.stat` on version 2, from `cpuacct.usage` on version 1.
    ///
    /// # Errors
    /// [`UsageError::Gone`] is part of life; the others are not.
    pub fn usage(&self, id: CgroupId, path: &CgroupPath) -> Result<Duration, UsageError> {
        let (name, parse): (_, fn(&str) -> Option<Duration>) = match self.version {
            Version::V1 => ("cpuacct.usage", nanoseconds),
            Version::V2 => (STATISTICS, usage_usec),
        };
        self.count(self.accounting.as_ref(), id, path, name, parse)
    }

    /// Time in which a cgroup's own CPU quota held its tasks since it was made, with those of everything below it: a sum
    /// over CPUs that grows when they may run again. `None` where a quota was never in force. From `cpu.stat`:
    /// `throttled_usec` on version 2, `throttled_time` on version 1.
    ///
    /// # Errors
    /// As for [`Self::usage`].
    pub fn throttled(&self, id: CgroupId, path: &CgroupPath) -> Result<Option<Duration>, UsageError> {
        let parse: fn(&str) -> Option<Option<Duration>> = match self.version {
            Version::V1 => |text| throttled(text, "throttled_time", Duration::from_nanos),
            Version::V2 => |text| throttled(text, "throttled_usec", Duration::from_micros),
        };
        self.count(Some(&self.tree), id, path, STATISTICS, parse)
    }

    /// What one of a cgroup's files says.
    fn count<T>(
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
        // After reading: whoever has the path now had it then, or is gone.
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

/// `cpuacct.usage`.
fn nanoseconds(text: &str) -> Option<Duration> {
    text.trim_end().parse().ok().map(Duration::from_nanos)
}

/// `cpu.stat`.
fn usage_usec(text: &str) -> Option<Duration> {
    figure(text, "usage_usec")?.parse().ok().map(Duration::from_micros)
}

/// `cpu.stat`: nothing where no period of a quota has passed, and where the controller is not on (version 2).
fn throttled(text: &str, name: &str, unit: fn(u64) -> Duration) -> Option<Option<Duration>> {
    match figure(text, "nr_periods") {
        None | Some("0") => Some(None),
        Some(_) => figure(text, name)?.parse().ok().map(|time| Some(unit(time))),
    }
}

/// What stands behind a name at the beginning of a line.
fn figure<'a>(text: &'a str, name: &str) -> Option<&'a str> {
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
    fn quotas_are_read_where_they_were_ever_in_force() {
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
    fn what_is_no_usage_is_refused() {
        for text in
            ["", "usage_usec", "usage_usec -1", "usage_usec 1 2", "user_usec 5", "usage_usec 18446744073709551616"]
        {
            assert_eq!(usage_usec(text), None, "{text}");
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }
}
