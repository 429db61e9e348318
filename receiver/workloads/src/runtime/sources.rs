//! The available sources and their order.

use std::{collections::BTreeSet, io, path::PathBuf, sync::Arc, time::Duration};

use tokio::{sync::Mutex, task::JoinHandle, time::Instant};

use super::{
    failure::TIMEOUT,
    lookup::Lookup,
    runtimes::Runtimes,
    source::{Api, Source},
};
use crate::{Runtime, reader::FoundSockets};

/// The interval of searches for sockets.
const PERIOD: Duration = Duration::from_secs(10);

/// All available sources.
pub(super) struct Sources {
    runtimes: Runtimes,
    kubernetes: Option<Arc<Source>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    searched: Option<Instant>,
    /// A search that has not returned.
    search: Option<JoinHandle<io::Result<FoundSockets>>>,
    sockets: Vec<Arc<Source>>,
    /// Unusable sockets that have been logged.
    reported: BTreeSet<PathBuf>,
}

impl Sources {
    pub(super) fn new(runtimes: Runtimes, kubernetes: Option<Source>) -> Self {
        Self { runtimes, kubernetes: kubernetes.map(Arc::new), known: Mutex::default() }
    }

    /// Returns true if a lookup includes the Kubernetes API, which lists containers later than the runtime.
    pub(super) fn includes_kubernetes(&self, lookup: &Lookup) -> bool {
        let served = lookup.user.is_none() && order(lookup.runtime).contains(&Api::Kubernetes);
        self.kubernetes.is_some() && served
    }

    /// Returns the sources that may have a container, in order of likelihood. A user's socket serves only the user's
    /// containers, and no other source serves these: the results would exceed its authority.
    pub(super) async fn serving(&self, lookup: &Lookup) -> Vec<Arc<Source>> {
        let mut known = self.known.lock().await;
        if known.searched.is_none_or(|searched| searched.elapsed() >= PERIOD) {
            self.refresh(&mut known).await;
        }
        let all = || known.sockets.iter().chain(&self.kubernetes).filter(|source| source.user() == lookup.user);
        order(lookup.runtime).iter().flat_map(|api| all().filter(|source| source.api() == *api).cloned()).collect()
    }

    async fn refresh(&self, known: &mut Known) {
        known.searched = Some(Instant::now());
        // A search that hangs in a file system blocks one thread at most.
        let start = || tokio::spawn(self.runtimes.clone().find());
        let Ok(found) = tokio::time::timeout(TIMEOUT, known.search.get_or_insert_with(start)).await else { return };
        known.search = None;
        let FoundSockets { endpoints, unusable } = match found.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(found) => found,
            Err(error) => return tracing::debug!("cannot search for the sockets of container runtimes: {error}"),
        };
        let is_found = |source: &Source| source.endpoint.as_ref().is_some_and(|endpoint| endpoints.contains(endpoint));
        known.sockets.retain(|source| is_found(source));
        for endpoint in &endpoints {
            if known.sockets.iter().all(|source| source.endpoint.as_ref() != Some(endpoint)) {
                match Source::behind(endpoint, &self.runtimes) {
                    Ok(sources) => known.sockets.extend(sources.into_iter().map(Arc::new)),
                    Err(failure) => tracing::debug!("{} is left out: {failure}", endpoint.path.display()),
                }
            }
        }
        for (path, reason) in unusable {
            if known.reported.insert(path.clone()) {
                tracing::warn!(
                    "{} is not queried for the names of containers: {reason}; check `workloads.sockets`, and in a container that the \
                     socket is mounted; it is searched for again",
                    path.display()
                );
            }
        }
    }
}

/// Returns the order of APIs for a runtime. If the path does not identify the runtime, the kubelet's is the most
/// likely.
fn order(runtime: Option<Runtime>) -> &'static [Api] {
    match runtime {
        None => &[Api::Cri, Api::Docker, Api::Containerd, Api::Kubernetes],
        Some(Runtime::Docker) => &[Api::Docker, Api::Cri, Api::Kubernetes],
        Some(Runtime::Podman) => &[Api::Docker],
        Some(Runtime::Containerd) => &[Api::Cri, Api::Containerd, Api::Kubernetes],
        Some(Runtime::Crio) => &[Api::Cri, Api::Kubernetes],
        Some(Runtime::Lxc | Runtime::Nspawn) => &[],
    }
}
