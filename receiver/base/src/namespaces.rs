//! The namespaces of this process that limit its capabilities and its view, or shift its clocks.

use std::{fs, os::unix::fs::MetadataExt as _, sync::LazyLock};

/// A kind of namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// Capabilities in another user namespace than the initial one do not permit BPF programs and perf events.
    User,
    /// Another cgroup namespace than the initial one shows a part of each hierarchy.
    Cgroup,
    /// A host name other than the host's belongs to another UTS namespace than the initial one.
    Uts,
}

impl Namespace {
    const fn file(self) -> &'static str {
        match self {
            Self::User => "/proc/self/ns/user",
            Self::Cgroup => "/proc/self/ns/cgroup",
            Self::Uts => "/proc/self/ns/uts",
        }
    }

    /// Returns the inode number of the initial namespace (`include/linux/proc_ns.h`).
    const fn initial(self) -> u64 {
        match self {
            Self::User => 0xEFFF_FFFD,
            Self::Cgroup => 0xEFFF_FFFB,
            Self::Uts => 0xEFFF_FFFE,
        }
    }

    /// Returns true if this process is in the initial namespace, or if the kernel has no namespaces of this kind.
    #[must_use]
    pub fn is_initial(self) -> bool {
        fs::metadata(self.file()).map_or(true, |file| file.ino() == self.initial())
    }
}

/// The offset of the monotonic clock in this process's time namespace, in nanoseconds. A process cannot change its own
/// time namespace.
static MONOTONIC_OFFSET: LazyLock<i128> =
    LazyLock::new(|| fs::read_to_string("/proc/self/timens_offsets").map_or(0, |offsets| offset(&offsets)));

/// Returns the monotonic clock of this process minus the monotonic clock of the kernel, in nanoseconds. It is zero
/// outside of time namespaces (`time_namespaces(7)`).
#[must_use]
pub fn monotonic_offset() -> i128 {
    *MONOTONIC_OFFSET
}

/// Parses the offset of the monotonic clock: lines of a clock, seconds and nanoseconds.
fn offset(offsets: &str) -> i128 {
    let monotonic = offsets.lines().find_map(|line| line.strip_prefix("monotonic"));
    let mut numbers = monotonic.unwrap_or_default().split_ascii_whitespace().map(|number| number.parse::<i64>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(seconds)), Some(Ok(nanoseconds))) => i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_the_monotonic_clock_is_read() {
        let text = |monotonic: &str| format!("monotonic  {monotonic}\nboottime            0         0\n");
        assert_eq!(offset(&text("         0         0")), 0);
        assert_eq!(offset(&text("     86400 500000000")), 86_400_500_000_000);
        assert_eq!(offset(&text("        -5         1")), -4_999_999_999);
        assert_eq!(["", "monotonic", "monotonic x y", "boottime 5 0"].map(offset), [0; 4]);
    }
}
