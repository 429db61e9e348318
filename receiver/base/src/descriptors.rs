//! The limit of open files of this process and of its parts.

use std::{borrow::Cow, io};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The remedy for too few descriptors.
pub const REMEDY: &str =
    "raise the limit of open files (`ulimit -n`; systemd: `LimitNOFILE=`; Docker: `--ulimit nofile=`)";

/// Raises the soft limit to the hard limit, and returns the limit; `None` without a limit. Shells and service managers keep
/// the soft limit at 1024 for programs that use `select(2)`.
pub fn raise() -> Option<u64> {
    let limits = getrlimit(Resource::Nofile);
    if limits.current != limits.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, maximum: limits.maximum })
    {
        tracing::debug!("cannot raise the limit of open files: {error}");
    }
    getrlimit(Resource::Nofile).current
}

/// Appends the remedy to a message about too few descriptors. Parts of the sidecar pass errors as text.
#[must_use]
pub fn explained(message: &str) -> Cow<'_, str> {
    let cause = io::Error::from_raw_os_error(libc::EMFILE).to_string();
    if message.contains(&cause) && !message.contains(REMEDY) {
        format!("{message}; {REMEDY}").into()
    } else {
        message.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_too_few_descriptors_have_the_remedy() {
        let message = explained("cannot open the map: Too many open files (os error 24)");
        assert!(message.ends_with(&format!("(os error 24); {REMEDY}")), "{message}");
        assert_eq!(explained(&message), message);
        assert_eq!(explained("Permission denied (os error 13)"), "Permission denied (os error 13)");
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_limit() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise(), hard);
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
    }
}
