//! A source of container metadata and its state.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use super::{
    bounds::Bounded,
    containerd::Containerd,
    cri::Cri,
    docker::Docker,
    failure::{Failure, Reason, TIMEOUT},
    kubernetes::Kubernetes,
    runtimes::Runtimes,
};
use crate::{ContainerId, Uid, reader::Endpoint};

/// The number of consecutive failures before back-off. Fewer may be specific to one container, for example an oversized
/// reply.
const PATIENCE: u32 = 3;
/// The first back-off. It doubles each time, up to a minute.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);
/// The maximum number of concurrent calls to a source, and of lookups that wait for a call. Limits per source keep a
/// slow source from delaying other sources.
const CALLS: usize = 4;
const QUEUE: usize = 512;
/// The limits of a user's socket.
const USER_CALLS: usize = 2;
const USER_QUEUE: usize = 32;
/// The minimum duration of a call to a user's socket. It limits the CPU time of a user who creates cgroups in a loop.
const USER_PACE: Duration = Duration::from_millis(50);

/// The API of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// Docker and Podman.
    Docker,
    /// The Container Runtime Interface.
    Cri,
    /// The API of containerd.
    Containerd,
    /// The Kubernetes API.
    Kubernetes,
}

impl Api {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Cri => "cri",
            Self::Containerd => "containerd",
            Self::Kubernetes => "kubernetes",
        }
    }
}

enum Client {
    Docker(Docker),
    Cri(Cri),
    Containerd(Containerd),
    Kubernetes(Kubernetes),
}

/// A source of container metadata.
pub(super) struct Source {
    /// The socket; `None` for the API server.
    pub(super) endpoint: Option<Endpoint>,
    client: Client,
    standing: Mutex<Standing>,
    /// Bounds the calls and the waiting lookups.
    queue: Semaphore,
    calls: Semaphore,
}

/// A position in the queue of a source, and one of its calls.
pub(super) struct Permit<'a> {
    _queued: SemaphorePermit<'a>,
    _call: SemaphorePermit<'a>,
}

struct Standing {
    failures_in_a_row: u32,
    /// The end and the reason of the back-off.
    rest: Option<(Instant, Reason)>,
    backoff: ExponentialBackoff,
    /// The reasons that have been logged.
    logged: BTreeSet<Reason>,
}

impl Source {
    /// Creates the clients of a socket, by its file name, without a connection. Needs a tokio runtime.
    pub(super) fn behind(endpoint: &Endpoint, runtimes: &Runtimes) -> Result<Vec<Self>, Failure> {
        let name = endpoint.path.file_name().unwrap_or_default().to_string_lossy();
        let clients = if name.contains("containerd") {
            vec![Client::Cri(Cri::new(endpoint, runtimes)), Client::Containerd(Containerd::new(endpoint, runtimes))]
        } else if name.contains("cri") {
            vec![Client::Cri(Cri::new(endpoint, runtimes))]
        } else {
            vec![Client::Docker(Docker::new(endpoint, runtimes)?)]
        };
        Ok(clients.into_iter().map(|client| Self::new(Some(endpoint.clone()), client)).collect())
    }

    pub(super) fn kubernetes(client: Kubernetes) -> Self {
        Self::new(None, Client::Kubernetes(client))
    }

    fn new(endpoint: Option<Endpoint>, client: Client) -> Self {
        let standing = Standing { failures_in_a_row: 0, rest: None, backoff: backoff(), logged: BTreeSet::new() };
        let of_user = endpoint.as_ref().is_some_and(|endpoint| endpoint.user().is_some());
        let (calls, queue) = if of_user { (USER_CALLS, USER_QUEUE) } else { (CALLS, QUEUE) };
        Self {
            endpoint,
            client,
            standing: Mutex::new(standing),
            queue: Semaphore::new(calls + queue),
            calls: Semaphore::new(calls),
        }
    }

    /// Returns the user to whose containers the source is limited; `None` for a source of the system.
    pub(super) fn user(&self) -> Option<Uid> {
        self.endpoint.as_ref().and_then(Endpoint::user)
    }

    /// Waits until the source may be called.
    ///
    /// # Errors
    /// [`Reason::Busy`] if too many lookups wait; the last failure during back-off.
    pub(super) async fn acquire(&self) -> Result<Permit<'_>, Reason> {
        self.backing_off().map_or(Ok(()), Err)?;
        let queued = self.queue.try_acquire().map_err(|_| Reason::Busy)?;
        // The semaphore is never closed.
        let call = self.calls.acquire().await.map_err(|_| Reason::Busy)?;
        // An earlier call may have failed.
        self.backing_off().map_or(Ok(()), Err)?;
        Ok(Permit { _queued: queued, _call: call })
    }

    pub(super) fn api(&self) -> Api {
        match &self.client {
            Client::Docker(_) => Api::Docker,
            Client::Cri(_) => Api::Cri,
            Client::Containerd(_) => Api::Containerd,
            Client::Kubernetes(_) => Api::Kubernetes,
        }
    }

    /// Looks up a container.
    pub(super) async fn look_up(&self, id: &ContainerId, _permit: Permit<'_>) -> Result<Bounded, Reason> {
        let pace = self.user().map(|_| tokio::time::sleep(USER_PACE));
        let answer = tokio::time::timeout(TIMEOUT, self.call(id)).await;
        if let Some(pace) = pace {
            pace.await;
        }
        let answer = answer.unwrap_or_else(|_| Err(Failure::timeout(TIMEOUT)));
        match &answer {
            Err(failure) if failure.reason != Reason::NotFound => self.failed(failure),
            _ => self.answered(),
        }
        answer.map_err(|failure| failure.reason)
    }

    async fn call(&self, id: &ContainerId) -> Result<Bounded, Failure> {
        match &self.client {
            Client::Docker(docker) => docker.container(id).await.map(Bounded::from),
            Client::Cri(cri) => cri.container(id).await.map(Bounded::from),
            Client::Containerd(containerd) => containerd.container(id).await.map(Bounded::from),
            Client::Kubernetes(kubernetes) => kubernetes.container(id).await,
        }
    }

    /// Returns the reason of the current back-off.
    fn backing_off(&self) -> Option<Reason> {
        self.standing().rest.filter(|(until, _)| Instant::now() < *until).map(|(_, reason)| reason)
    }

    fn answered(&self) {
        let mut standing = self.standing();
        standing.failures_in_a_row = 0;
        if standing.rest.take().is_some() {
            standing.backoff = backoff();
            tracing::debug!(api = self.api().as_str(), "{self} responds again");
        }
    }

    fn failed(&self, failure: &Failure) {
        self.standing().fail(failure.reason);
        let api = self.api().as_str();
        // Failures of user sockets must not fill the log.
        let complaint = if self.user().is_none() { self.complaint(failure) } else { None };
        match complaint {
            Some(complaint) => tracing::warn!(api, "{complaint}"),
            None => tracing::debug!(api, "the call to {self} failed ({failure})"),
        }
    }

    /// Returns the log message for a failure, once for each reason; `None` if the failure is expected.
    fn complaint(&self, failure: &Failure) -> Option<String> {
        let cure = self.cure(failure.reason)?;
        let first = self.standing().logged.insert(failure.reason);
        first.then(|| format!("cannot look up containers in {self} ({failure}): {cure}"))
    }

    /// Returns the remedy for a failure; `None` if the failure is expected.
    fn cure(&self, reason: Reason) -> Option<&'static str> {
        match (reason, self.api()) {
            (Reason::NotFound | Reason::Unsupported | Reason::Busy, _) => None,
            (Reason::Denied, Api::Kubernetes) => {
                Some("let the service account get, list and watch pods, or set `workloads.kubernetes: false`")
            }
            (Reason::Denied, _) => {
                Some("run undercurrent as root, or in the group that owns the socket, such as `docker`")
            }
            (_, Api::Kubernetes) => Some("check that the API server is reachable; retrying"),
            (Reason::Untrusted, _) => {
                Some("root must own the socket; `workloads.sockets` names sockets of other owners")
            }
            (Reason::Gone, _) => Some("check that the runtime is running; retrying"),
            (Reason::Timeout, _) => Some("the runtime hangs or is overloaded; retrying"),
            (Reason::Refused, _) => Some("see the log of the runtime; retrying"),
            (Reason::Closed, _) => Some("the runtime stopped, or sent more than 1 MiB; retrying"),
            (Reason::Malformed, _) => {
                Some("check that a runtime with this API owns the socket (`workloads.sockets`); retrying")
            }
        }
    }

    fn standing(&self) -> std::sync::MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Some(endpoint) => endpoint.path.display().fmt(f),
            None => f.write_str("the API server"),
        }
    }
}

impl Standing {
    fn fail(&mut self, reason: Reason) {
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        let own = match reason {
            Reason::Unsupported | Reason::Gone | Reason::Denied | Reason::Untrusted | Reason::Timeout => true,
            Reason::NotFound | Reason::Busy | Reason::Refused | Reason::Closed | Reason::Malformed => false,
        };
        let now = Instant::now();
        // Concurrent calls fail together, which counts as one failure.
        let backing_off = self.rest.is_some_and(|(until, _)| now < until);
        if !backing_off && (own || self.failures_in_a_row >= PATIENCE) {
            self.rest = Some((now + self.backoff.next().unwrap_or(LONGEST_REST), reason));
        }
    }
}

fn backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(FIRST_REST)
        .with_max_delay(LONGEST_REST)
        .with_factor(2.0)
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sockets_name_says_what_it_speaks() {
        for (path, expected) in [
            ("/run/docker.sock", &[Api::Docker][..]),
            ("/run/user/1000/podman/podman.sock", &[Api::Docker]),
            ("/run/containerd/containerd.sock", &[Api::Cri, Api::Containerd]),
            ("/run/crio/crio.sock", &[Api::Cri]),
            ("/run/cri-dockerd.sock", &[Api::Cri]),
            ("/", &[Api::Docker]),
        ] {
            let sources =
                Source::behind(&Endpoint::named(path.into()), &Runtimes::local(crate::reader::SocketPaths::default()))
                    .expect("clients");
            assert_eq!(sources.iter().map(Source::api).collect::<Vec<_>>(), expected, "{path}");
        }
    }

    const REASONS: [Reason; 10] = [
        Reason::NotFound,
        Reason::Unsupported,
        Reason::Gone,
        Reason::Busy,
        Reason::Denied,
        Reason::Untrusted,
        Reason::Refused,
        Reason::Closed,
        Reason::Malformed,
        Reason::Timeout,
    ];

    fn complaints(source: &Source) -> String {
        let complaints = REASONS.iter().filter_map(|reason| source.complaint(&Failure::new(*reason, "its\nwords")));
        complaints.collect::<Vec<_>>().join("\n")
    }

    #[tokio::test]
    async fn a_failure_of_a_source_is_logged_once_for_each_reason() {
        let docker = Source::behind(
            &Endpoint::usual("/run/docker.sock".into()),
            &Runtimes::local(crate::reader::SocketPaths::default()),
        )
        .expect("a client")
        .remove(0);
        insta::assert_snapshot!(complaints(&docker), @r"
        cannot look up containers in /run/docker.sock (gone: its\nwords): check that the runtime is running; retrying
        cannot look up containers in /run/docker.sock (denied: its\nwords): run undercurrent as root, or in the group that owns the socket, such as `docker`
        cannot look up containers in /run/docker.sock (untrusted: its\nwords): root must own the socket; `workloads.sockets` names sockets of other owners
        cannot look up containers in /run/docker.sock (refused: its\nwords): see the log of the runtime; retrying
        cannot look up containers in /run/docker.sock (closed: its\nwords): the runtime stopped, or sent more than 1 MiB; retrying
        cannot look up containers in /run/docker.sock (malformed: its\nwords): check that a runtime with this API owns the socket (`workloads.sockets`); retrying
        cannot look up containers in /run/docker.sock (timeout: its\nwords): the runtime hangs or is overloaded; retrying
        ");
        assert_eq!(complaints(&docker), "");
    }

    #[tokio::test]
    async fn failures_of_the_api_server_have_their_own_remedies() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        let access = crate::runtime::kubernetes::Access { config, node: "worker-1".to_owned() };
        let kubernetes = Source::kubernetes(Kubernetes::watch(access).expect("a client"));
        insta::assert_snapshot!(complaints(&kubernetes), @r"
        cannot look up containers in the API server (gone: its\nwords): check that the API server is reachable; retrying
        cannot look up containers in the API server (denied: its\nwords): let the service account get, list and watch pods, or set `workloads.kubernetes: false`
        cannot look up containers in the API server (untrusted: its\nwords): check that the API server is reachable; retrying
        cannot look up containers in the API server (refused: its\nwords): check that the API server is reachable; retrying
        cannot look up containers in the API server (closed: its\nwords): check that the API server is reachable; retrying
        cannot look up containers in the API server (malformed: its\nwords): check that the API server is reachable; retrying
        cannot look up containers in the API server (timeout: its\nwords): check that the API server is reachable; retrying
        ");
    }
}
