//! The service of a process, from the environment variables that OpenTelemetry SDKs read.

use std::{
    fs::File,
    io::{self, Read},
};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{telemetry::listed, text::LONGEST};

/// The maximum size that is read of an environment. The rest is ignored.
const LIMIT: u64 = 128 << 10;
/// The initial buffer size. Most environments fit and take one read.
const USUAL: usize = 4096;

/// A service, by the semantic conventions. Unknown fields are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// `service.name`.
    pub name: Option<String>,
    /// `service.namespace`.
    pub namespace: Option<String>,
    /// `service.version`.
    pub version: Option<String>,
    /// `deployment.environment.name`.
    pub environment: Option<String>,
}

/// The reason why the environment of a process is unknown.
#[derive(Debug, thiserror::Error)]
pub enum EnvironError {
    /// The process has ended.
    #[error("process {0} is gone")]
    Gone(u32),
    /// This process may not trace the other process.
    #[error("the environment of process {0} cannot be read without CAP_SYS_PTRACE: another user owns the process")]
    Forbidden(u32),
    /// The environment is empty: the process executes another program or ends, is a kernel thread, or has no
    /// environment. A process that executes a program has an environment a moment later.
    #[error("the environment of process {0} is empty")]
    Empty(u32),
    /// The process is not in the cgroup.
    #[error("process {0} has moved to another cgroup, or its cgroup has too many processes")]
    Moved(u32),
    /// The read failed for another reason.
    #[error("the environment of process {pid} cannot be read: {source}")]
    Unreadable {
        /// Process id.
        pid: u32,
        /// The error of the read.
        source: io::Error,
    },
}

impl Service {
    /// Reads the service from the initial environment of a process. The read blocks while another thread holds the
    /// process's `mmap_lock`, so it must not run in a tick. The first process of a container has the runtime's
    /// environment until it executes the program of the container.
    ///
    /// # Errors
    /// If the environment is empty or cannot be read.
    pub fn of_process(pid: u32) -> Result<Self, EnvironError> {
        let environ = File::open(format!("/proc/{pid}/environ")).and_then(read);
        match environ {
            Ok(environ) if environ.is_empty() => Err(EnvironError::Empty(pid)),
            Ok(environ) => Ok(Self::parse(&environ)),
            Err(source) => Err(EnvironError::new(pid, source)),
        }
    }

    /// Parses an environment, a sequence of `NAME=VALUE` with NUL terminators. A process may have written any bytes
    /// there.
    #[must_use]
    pub fn parse(environ: &[u8]) -> Self {
        let variable = |name: &str| {
            let mut entries = environ.split(|byte| *byte == 0);
            let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
            str::from_utf8(value).ok().map(str::to_owned)
        };
        let mut service = Self::default();
        // Parse errors are ignored here; the SDK of the process reports them.
        for (key, value) in listed(&variable).0 {
            let field = match key.as_str() {
                "service.name" => &mut service.name,
                "service.namespace" => &mut service.namespace,
                "service.version" => &mut service.version,
                "deployment.environment.name" => &mut service.environment,
                _ => continue,
            };
            *field = Some(value).filter(|value| !value.is_empty() && value.len() <= LONGEST);
        }
        service
    }
}

/// Reads an environment up to the limit. Removes a variable that the limit truncates.
fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut environ = Vec::with_capacity(USUAL);
    from.take(LIMIT).read_to_end(&mut environ)?;
    if environ.len() as u64 == LIMIT {
        environ.truncate(environ.iter().rposition(|byte| *byte == 0).unwrap_or_default());
    }
    Ok(environ)
}

impl EnvironError {
    fn new(pid: u32, source: io::Error) -> Self {
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::SRCH) => Self::Gone(pid),
            Some(Errno::ACCESS | Errno::PERM) => Self::Forbidden(pid),
            _ => Self::Unreadable { pid, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use proptest::prelude::*;

    use super::*;

    fn service(name: &str, namespace: &str, version: &str, environment: &str) -> Service {
        let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Service {
            name: known(name),
            namespace: known(namespace),
            version: known(version),
            environment: known(environment),
        }
    }

    #[test]
    fn otel_service_name_overrides_the_resource_attributes() {
        let list = "OTEL_RESOURCE_ATTRIBUTES=service.name=listed,service.namespace=shop,service.version=1%2C2,\
                    deployment.environment.name=staging,host.id=x\0";
        assert_eq!(Service::parse(list.as_bytes()), service("listed", "shop", "1,2", "staging"));
        let both = format!("PATH=/bin\0{list}OTEL_SERVICE_NAME=cart\0");
        assert_eq!(Service::parse(both.as_bytes()), service("cart", "shop", "1,2", "staging"));
        let empty = format!("OTEL_SERVICE_NAME= \0{list}");
        assert_eq!(Service::parse(empty.as_bytes()).name.as_deref(), Some("listed"));
    }

    #[test]
    fn malformed_variables_are_ignored() {
        let long = format!("OTEL_SERVICE_NAME={}\0", "a".repeat(LONGEST + 1));
        for environ in [
            &b""[..],
            b"\0\0",
            b"OTEL_SERVICE_NAME\0",
            b"OTEL_SERVICE_NAME=\0",
            b"OTEL_SERVICE_NAME=\xff\0",
            b"XOTEL_SERVICE_NAME=a\0",
            b"OTEL_SERVICE_NAMES=a\0",
            b"OTEL_RESOURCE_ATTRIBUTES=service.name=a,b\0",
            b"OTEL_RESOURCE_ATTRIBUTES=service.name=\0",
            long.as_bytes(),
        ] {
            assert_eq!(Service::parse(environ), Service::default(), "{}", environ.escape_ascii());
        }
        let first = Service::parse(b"OTEL_SERVICE_NAME=a\0OTEL_SERVICE_NAME=b\0OTEL_RESOURCE_ATTRIBUTES=%");
        assert_eq!(first, service("a", "", "", ""), "the first counts, as with getenv");
    }

    /// A process that is killed on drop.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            self.0.kill().expect("killed");
            self.0.wait().expect("gone");
        }
    }

    #[test]
    fn the_service_is_read_from_a_process() {
        let child = Command::new("sleep").arg("60").env("OTEL_SERVICE_NAME", "cart").spawn();
        let process = Running(child.expect("a process"));
        let seen = loop {
            match Service::of_process(process.0.id()) {
                Err(EnvironError::Empty(_)) => std::thread::yield_now(),
                seen => break seen.expect("an environment"),
            }
        };
        assert_eq!(seen, Service { name: Some("cart".to_owned()), ..Service::parse(&own()) });
    }

    /// Returns the environment of this process, which child processes inherit.
    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/environ").expect("an environment")
    }

    #[test]
    fn an_environment_is_read_up_to_a_limit() {
        let limit = usize::try_from(LIMIT).expect("a size");
        let variable = b"OTEL_SERVICE_NAME=cart\0";
        for (before, name) in
            [(limit - variable.len(), Some("cart")), (limit - variable.len() + 1, None), (limit, None)]
        {
            let environ = [&vec![b'x'; before - 1][..], b"\0", variable, b"y\0"].concat();
            let seen = read(environ.as_slice()).expect("bytes");
            assert!(seen.len() <= limit);
            assert_eq!(Service::parse(&seen).name.as_deref(), name, "after {before} bytes");
        }
        assert_eq!(read(&vec![b'x'; limit + 1][..]).expect("bytes"), b"", "no variable ends");
    }

    #[test]
    fn a_process_that_ended_is_an_error() {
        let mut child = Command::new("true").spawn().expect("a process");
        child.wait().expect("an end");
        let error = Service::of_process(child.id()).expect_err("nobody");
        assert!(matches!(error, EnvironError::Gone(_)), "{error}");
        let denied = EnvironError::new(7, Errno::ACCESS.into());
        insta::assert_snapshot!(denied.to_string(), @"the environment of process 7 cannot be read without CAP_SYS_PTRACE: another user owns the process");
        let other = EnvironError::new(7, Errno::IO.into());
        insta::assert_snapshot!(other.to_string(), @"the environment of process 7 cannot be read: Input/output error (os error 5)");
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_parsed(environ in prop::collection::vec(any::<u8>(), 0..200)) {
            let environ = [b"OTEL_RESOURCE_ATTRIBUTES=service.name=", environ.as_slice()].concat();
            if let Some(name) = Service::parse(&environ).name {
                prop_assert!((1..=LONGEST).contains(&name.len()));
            }
        }
    }
}
