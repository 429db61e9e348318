//! Which sources there are, and whom to ask first.

use std::{collections::BTreeSet, io, path::PathBuf, sync::Arc, time::Duration};

use tokio::{sync::Mutex, task::JoinHandle, time::Instant};

use super::{
    opener::Opener,
    question::Question,
    sockets::{Look, Places},
    source::{Api, Source, TIMEOUT},
};
use crate::workloads::Runtime;

/// How often sockets are looked for.
const LOOK: Duration = Duration::from_secs(10);

/// Every source that is there.
pub(super) struct Sources {
    opener: Opener,
    places: Places,
    kubernetes: Option<Arc<Source>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    looked: Option<Instant>,
    /// A look that has not come back.
    looking: Option<JoinHandle<io::Result<Look>>>,
    sockets: Vec<Arc<Source>>,
    /// Unusable sockets that the log names.
    reported: BTreeSet<PathBuf>,
}

impl Sources {
    pub(super) fn new(opener: Opener, places: Places, kubernetes: Option<Source>) -> Self {
        Self { opener, places, kubernetes: kubernetes.map(Arc::new), known: Mutex::default() }
    }

    /// Returns whether a question goes to the Kubernetes API, where containers appear later than in the runtime.
    pub(super) fn ask_kubernetes(&self, question: &Question) -> bool {
        let served = question.user.is_none() && order(question.runtime).contains(&Api::Kubernetes);
        self.kubernetes.is_some() && served
    }

    /// Those that may know a container, the likeliest first. A user's socket serves the user's containers only, and no
    /// other source serves these: each would answer about containers outside of its authority.
    pub(super) async fn serving(&self, question: &Question) -> Vec<Arc<Source>> {
        let mut known = self.known.lock().await;
        if known.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.look(&mut known).await;
        }
        let all = || known.sockets.iter().chain(&self.kubernetes).filter(|source| source.user() == question.user);
        order(question.runtime).iter().flat_map(|api| all().filter(|source| source.api() == *api).cloned()).collect()
    }

    async fn look(&self, known: &mut Known) {
        known.looked = Some(Instant::now());
        // A folder on a file system that hangs holds up one thread, and only one.
        let look = || tokio::spawn(self.opener.clone().look(self.places.clone()));
        let Ok(found) = tokio::time::timeout(TIMEOUT, known.looking.get_or_insert_with(look)).await else { return };
        known.looking = None;
        let Look { endpoints, unusable } = match found.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(look) => look,
            Err(error) => return tracing::debug!("cannot search for the sockets of container runtimes: {error}"),
        };
        let is_found = |source: &Source| source.endpoint.as_ref().is_some_and(|endpoint| endpoints.contains(endpoint));
        known.sockets.retain(|source| is_found(source));
        for endpoint in &endpoints {
            if known.sockets.iter().all(|source| source.endpoint.as_ref() != Some(endpoint)) {
                match Source::behind(endpoint, &self.opener) {
                    Ok(sources) => known.sockets.extend(sources.into_iter().map(Arc::new)),
                    Err(failure) => tracing::debug!("{} is left out: {failure}", endpoint.path.display()),
                }
            }
        }
        for (path, reason) in unusable {
            if known.reported.insert(path.clone()) {
                tracing::warn!(
                    "{} is not asked for containers' names: {reason}; check `workloads.sockets`, and in a container that the \
                     socket is mounted; it is looked for again",
                    path.display()
                );
            }
        }
    }
}

/// Whom to ask about a runtime's containers. One that a path does not tell is most often the kubelet's.
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
