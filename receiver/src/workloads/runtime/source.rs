//! One place that may know containers, and how it stands with it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use super::{
    bounds::Bounded,
    containerd::Containerd,
    cri::Cri,
    docker::Docker,
    failure::{Failure, Reason},
    kubernetes::Kubernetes,
};
use crate::workloads::ContainerId;

/// How long a question to a source may take, with all the calls that it needs.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);
/// Failures in a row after which a source is left alone. Fewer may be one container's, such as an answer that is too long.
const PATIENCE: u32 = 3;
/// For how long: from one second, doubled each time, to a minute.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// What a source speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// Docker's, and Podman's.
    Docker,
    /// What the kubelet speaks.
    Cri,
    /// containerd's own.
    Containerd,
    /// The API server's.
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

/// One place that may know containers.
pub(super) struct Source {
    /// Its socket, or the API server.
    pub(super) place: PathBuf,
    client: Client,
    standing: Mutex<Standing>,
}

struct Standing {
    failures_in_a_row: u32,
    /// Left alone until then, for this reason.
    rest: Option<(Instant, Reason)>,
    backoff: ExponentialBackoff,
    /// What was said of it already.
    said: BTreeSet<Reason>,
}

impl Source {
    /// What a socket offers, by its file's name; nothing connects yet. Needs a tokio runtime.
    pub(super) fn behind(socket: &Path) -> Result<Vec<Self>, Failure> {
        let name = socket.file_name().unwrap_or_default().to_string_lossy();
        let clients = if name.contains("containerd") {
            vec![Client::Cri(Cri::new(socket)?), Client::Containerd(Containerd::new(socket)?)]
        } else if name.contains("cri") {
            vec![Client::Cri(Cri::new(socket)?)]
        } else {
            vec![Client::Docker(Docker::new(socket)?)]
        };
        Ok(clients.into_iter().map(|client| Self::new(socket, client)).collect())
    }

    pub(super) fn kubernetes(client: Kubernetes) -> Self {
        Self::new(Path::new("the API server"), Client::Kubernetes(client))
    }

    fn new(place: &Path, client: Client) -> Self {
        let standing = Standing { failures_in_a_row: 0, rest: None, backoff: backoff(), said: BTreeSet::new() };
        Self { place: place.to_owned(), client, standing: Mutex::new(standing) }
    }

    pub(super) fn api(&self) -> Api {
        match &self.client {
            Client::Docker(_) => Api::Docker,
            Client::Cri(_) => Api::Cri,
            Client::Containerd(_) => Api::Containerd,
            Client::Kubernetes(_) => Api::Kubernetes,
        }
    }

    /// What it says of a container.
    pub(super) async fn ask(&self, id: &ContainerId) -> Result<Bounded, Reason> {
        let answer = tokio::time::timeout(TIMEOUT, self.call(id)).await;
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

    /// Why it is left alone at the moment, if it is.
    pub(super) fn resting(&self) -> Option<Reason> {
        self.standing().rest.filter(|(until, _)| Instant::now() < *until).map(|(_, reason)| reason)
    }

    fn answered(&self) {
        let mut standing = self.standing();
        standing.failures_in_a_row = 0;
        if standing.rest.take().is_some() {
            standing.backoff = backoff();
            tracing::debug!(api = self.api().as_str(), "{} answers again", self.place.display());
        }
    }

    fn failed(&self, failure: &Failure) {
        self.standing().fail(failure.reason);
        let api = self.api().as_str();
        match self.complaint(failure) {
            Some(complaint) => tracing::warn!(api, "{complaint}"),
            None => tracing::debug!(api, "no answer from {} ({failure})", self.place.display()),
        }
    }

    /// What an administrator is told of a failure, once for each reason; nothing where nothing is wrong.
    fn complaint(&self, failure: &Failure) -> Option<String> {
        let cure = self.cure(failure.reason)?;
        let first = self.standing().said.insert(failure.reason);
        first.then(|| format!("cannot ask {} for containers' names ({failure}): {cure}", self.place.display()))
    }

    /// What somebody can do about it; `None` where nothing is wrong.
    fn cure(&self, reason: Reason) -> Option<&'static str> {
        match (reason, self.api()) {
            (Reason::NotFound | Reason::Unsupported, _) => None,
            (Reason::Denied, Api::Kubernetes) => {
                Some("let the service account get, list and watch pods, or set `workloads.kubernetes: false`")
            }
            (Reason::Denied, _) => {
                Some("run undercurrent as root, or in the group that owns the socket, such as `docker`")
            }
            (_, Api::Kubernetes) => Some("is the API server to be reached from here? It is tried again"),
            (Reason::Gone, _) => Some("is the runtime running? It is asked again"),
            (Reason::Timeout, _) => Some("the runtime hangs or is overloaded; it is asked again"),
            (Reason::Refused, _) => Some("the runtime's own log says more; it is asked again"),
            (Reason::Closed, _) => Some("it stopped, or had more to say than 1 MiB; it is asked again"),
            (Reason::Malformed, _) => {
                Some("is it a container runtime of that kind? It is asked again; `workloads.sockets` names whom to ask")
            }
        }
    }

    fn standing(&self) -> std::sync::MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    fn fail(&mut self, reason: Reason) {
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        let own = match reason {
            Reason::Unsupported | Reason::Gone | Reason::Denied | Reason::Timeout => true,
            Reason::NotFound | Reason::Refused | Reason::Closed | Reason::Malformed => false,
        };
        let now = Instant::now();
        // Calls that were under way together fail together: that is one reason to rest.
        let resting = self.rest.is_some_and(|(until, _)| now < until);
        if !resting && (own || self.failures_in_a_row >= PATIENCE) {
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
            let sources = Source::behind(Path::new(path)).expect("clients");
            assert_eq!(sources.iter().map(Source::api).collect::<Vec<_>>(), expected, "{path}");
        }
    }

    const REASONS: [Reason; 8] = [
        Reason::NotFound,
        Reason::Unsupported,
        Reason::Gone,
        Reason::Denied,
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
    async fn a_source_is_complained_about_once_for_each_reason() {
        let docker = Source::behind(Path::new("/run/docker.sock")).expect("a client").remove(0);
        insta::assert_snapshot!(complaints(&docker), @r"
        cannot ask /run/docker.sock for containers' names (gone: its\nwords): is the runtime running? It is asked again
        cannot ask /run/docker.sock for containers' names (denied: its\nwords): run undercurrent as root, or in the group that owns the socket, such as `docker`
        cannot ask /run/docker.sock for containers' names (refused: its\nwords): the runtime's own log says more; it is asked again
        cannot ask /run/docker.sock for containers' names (closed: its\nwords): it stopped, or had more to say than 1 MiB; it is asked again
        cannot ask /run/docker.sock for containers' names (malformed: its\nwords): is it a container runtime of that kind? It is asked again; `workloads.sockets` names whom to ask
        cannot ask /run/docker.sock for containers' names (timeout: its\nwords): the runtime hangs or is overloaded; it is asked again
        ");
        assert_eq!(complaints(&docker), "");
    }

    #[tokio::test]
    async fn the_api_server_is_complained_about_in_other_words() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        let access = crate::workloads::runtime::kubernetes::Access { config, node: "worker-1".to_owned() };
        let kubernetes = Source::kubernetes(Kubernetes::watch(access).expect("a client"));
        insta::assert_snapshot!(complaints(&kubernetes), @r"
        cannot ask the API server for containers' names (gone: its\nwords): is the API server to be reached from here? It is tried again
        cannot ask the API server for containers' names (denied: its\nwords): let the service account get, list and watch pods, or set `workloads.kubernetes: false`
        cannot ask the API server for containers' names (refused: its\nwords): is the API server to be reached from here? It is tried again
        cannot ask the API server for containers' names (closed: its\nwords): is the API server to be reached from here? It is tried again
        cannot ask the API server for containers' names (malformed: its\nwords): is the API server to be reached from here? It is tried again
        cannot ask the API server for containers' names (timeout: its\nwords): is the API server to be reached from here? It is tried again
        ");
    }
}
