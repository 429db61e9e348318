//! CPU time of a cgroup, as the kernel counts it.

use std::{fs, io, path::PathBuf, time::Duration};

use super::{Hierarchy, Version, is_gone};
use crate::workloads::{CgroupId, CgroupPath};

/// Why a cgroup's CPU time is not known.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The cgroup is not there any more, or another one has its path.
    #[error("the cgroup is gone")]
    Gone,
    /// The kernel does not count it, or not where this process could read it.
    #[error("the kernel keeps no CPU time of it that is mounted here")]
    NotKept,
    /// The file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
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
        let directory = self.accounting.as_ref().and_then(|mount| mount.directory(path)).ok_or(UsageError::NotKept)?;
        let (name, parse): (_, fn(&str) -> Option<Duration>) = match self.version {
            Version::V1 => ("cpuacct.usage", nanoseconds),
            Version::V2 => ("cpu.stat", usage_usec),
        };
        let file = directory.join(name);
        let text = fs::read_to_string(&file);
        // After reading: whoever has the path now had it then, or is gone.
        match (self.id(path), text) {
            (Ok(now), _) if now != id => Err(UsageError::Gone),
            (Err(error), _) if is_gone(&error) => Err(UsageError::Gone),
            (Err(source), _) => Err(UsageError::Unreadable { file: directory, source }),
            (_, Err(error)) if is_gone(&error) => Err(UsageError::NotKept),
            (_, Err(source)) => Err(UsageError::Unreadable { file, source }),
            (_, Ok(text)) => parse(&text).ok_or(UsageError::Malformed { file }),
        }
    }
}

/// `cpuacct.usage`.
fn nanoseconds(text: &str) -> Option<Duration> {
    text.trim_end().parse().ok().map(Duration::from_nanos)
}

/// `cpu.stat`.
fn usage_usec(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    line.parse().ok().map(Duration::from_micros)
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
    fn what_is_no_usage_is_refused() {
        for text in
            ["", "usage_usec", "usage_usec -1", "usage_usec 1 2", "user_usec 5", "usage_usec 18446744073709551616"]
        {
            assert_eq!(usage_usec(text), None, "{text}");
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }
}
