//! Which sources there are, and whom to ask first.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use tokio::{sync::Mutex, task::JoinHandle, time::Instant};

use super::{
    sockets::Places,
    source::{Api, Source, TIMEOUT},
};
use crate::workloads::Runtime;

/// How often sockets are looked for.
const LOOK: Duration = Duration::from_secs(10);

/// Every source that is there.
pub(super) struct Sources {
    places: Places,
    kubernetes: Option<Arc<Source>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    looked: Option<Instant>,
    /// A look that has not come back.
    looking: Option<JoinHandle<Vec<PathBuf>>>,
    sockets: Vec<Arc<Source>>,
    /// Named sockets that were missed.
    missed: BTreeSet<PathBuf>,
}

impl Sources {
    pub(super) fn new(places: Places, kubernetes: Option<Source>) -> Self {
        Self { places, kubernetes: kubernetes.map(Arc::new), known: Mutex::default() }
    }

    /// Whether the Kubernetes API is asked about a runtime's containers, which hears of them later than the runtime.
    pub(super) fn ask_kubernetes(&self, runtime: Option<Runtime>) -> bool {
        self.kubernetes.is_some() && order(runtime).contains(&Api::Kubernetes)
    }

    /// Those that may know containers of a runtime, the likeliest first.
    pub(super) async fn serving(&self, runtime: Option<Runtime>) -> Vec<Arc<Source>> {
        let mut known = self.known.lock().await;
        if known.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.look(&mut known).await;
        }
        let all = || known.sockets.iter().chain(&self.kubernetes);
        order(runtime).iter().flat_map(|api| all().filter(|source| source.api() == *api).cloned()).collect()
    }

    async fn look(&self, known: &mut Known) {
        known.looked = Some(Instant::now());
        let places = self.places.clone();
        // A folder on a file system that hangs holds up a thread of its own, and only one.
        let looking = known.looking.get_or_insert_with(|| tokio::task::spawn_blocking(move || places.look()));
        let Ok(found) = tokio::time::timeout(TIMEOUT, looking).await else { return };
        known.looking = None;
        let found = found.unwrap_or_default();
        known.sockets.retain(|source| found.contains(&source.place));
        for path in &found {
            if known.sockets.iter().all(|source| source.place != *path) {
                match Source::behind(path) {
                    Ok(sources) => known.sockets.extend(sources.into_iter().map(Arc::new)),
                    Err(failure) => tracing::debug!("{} is left out: {failure}", path.display()),
                }
            }
        }
        for path in self.places.named().iter().filter(|path| !found.contains(path)) {
            if known.missed.insert(path.clone()) {
                tracing::warn!(
                    "{} is no socket, or not to be seen from here: check `workloads.sockets`, and in a container that it is \
                     mounted; it is looked for again",
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
