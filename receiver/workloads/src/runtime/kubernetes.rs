//! The pods of this node from the Kubernetes API: a watch maintains them, and lookups use container ids.

mod reply_limit;

use std::{collections::HashMap, io, path::Path, pin::pin, time::Duration};

use futures_util::StreamExt;
use kube::{
    Api, Client, Config,
    client::ClientBuilder,
    core::{ApiResource, Object, ObjectMeta},
    runtime::{WatchStreamExt, watcher},
};
use serde::Deserialize;
use tokio::{sync::watch, task::JoinHandle, time::Instant};

use self::reply_limit::LimitReplies;
use super::{
    bounds::Bounded,
    failure::{Failure, Reason, TIMEOUT, cause},
    image::Image,
};
use crate::{
    ContainerId, Metadata, PodMetadata,
    causes::chain,
    environment::{Environment, value},
    node::Node,
};

/// Path of the token of the pod's service account.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Number of pods in a page of the list.
const PAGE: u32 = 50;
/// The maximum number of containers, and of pods in a list. A node has some hundred pods at most.
const CONTAINERS: usize = 4096;
/// The longest id of a container, and the longest namespace and name of a pod together, in bytes. Ids have 64, names 253 each.
const LONGEST: usize = 1 << 10;
/// The time for which a failure of the watch makes missing containers uncertain. Retries are more frequent.
const DOUBT: Duration = Duration::from_secs(60);
/// The timeout of a list. A watch receives data each minute.
const SILENCE: Duration = Duration::from_secs(300);

/// The configuration of the client, and the name of the node.
pub(super) struct Access {
    pub(super) config: Config,
    pub(super) node: String,
}

impl Access {
    /// Reads the environment of a pod. Returns `None` outside of a pod, without a token or without the name of the
    /// node.
    pub(super) fn detect(node: &Node, environment: Environment<'_>) -> Option<Self> {
        value(environment, "KUBERNETES_SERVICE_HOST").filter(|_| Path::new(TOKEN).is_file())?;
        let Some(node) = node.kubernetes_name.clone() else {
            tracing::debug!("pods are not looked up in the API server: K8S_NODE_NAME is not set");
            return None;
        };
        let config = Config::incluster();
        config.map(|config| Self { config, node }).inspect_err(unusable).ok()
    }
}

fn unusable(error: &impl std::fmt::Display) {
    tracing::warn!("cannot look up pods in the API server: {error}; `workloads.kubernetes: false` disables it");
}

/// The known pods of this node.
pub(super) struct Kubernetes {
    pods: watch::Receiver<Pods>,
    watching: JoinHandle<()>,
}

impl Kubernetes {
    /// Starts to watch the pods of a node. Needs a tokio runtime; the task ends when the value is dropped.
    pub(super) fn watch(mut access: Access) -> Option<Self> {
        access.config.connect_timeout = Some(TIMEOUT);
        access.config.read_timeout = Some(SILENCE);
        let client = ClientBuilder::try_from(access.config).inspect_err(unusable).ok()?;
        let client = client.with_layer(&LimitReplies).build();
        let (changed, pods) = watch::channel(Pods::default());
        Some(Self { pods, watching: tokio::spawn(follow(client, access.node, changed)) })
    }

    pub(super) async fn container(&self, id: &ContainerId) -> Result<Bounded, Failure> {
        let mut pods = self.pods.clone();
        let pods = pods.wait_for(|pods| pods.listed || pods.failure().is_some()).await;
        let pods = pods.map_err(|error| Failure::new(Reason::Closed, error))?;
        match (pods.containers.get(&id.0), pods.failure()) {
            (Some(known), _) => Ok(known.clone()),
            (None, Some(failure)) => Err(failure),
            (None, None) => Err(Failure::new(Reason::NotFound, "no pod of this node has it")),
        }
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

async fn follow(client: Client, node: String, changed: watch::Sender<Pods>) {
    let api: Api<Pod> = Api::all_with(client, &ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&()));
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}")).page_size(PAGE);
    loop {
        let mut events = pin!(watcher(api.clone(), config.clone()).default_backoff());
        while let Some(event) = events.next().await {
            changed.send_modify(|pods| pods.apply(event));
            if changed.borrow().is_endless() {
                break;
            }
        }
        changed.send_modify(Pods::abandon);
        tokio::time::sleep(DOUBT).await;
    }
}

/// The fields of a pod that are used.
type Pod = Object<Spec, Status>;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    containers: Option<Vec<SpecContainer>>,
    init_containers: Option<Vec<SpecContainer>>,
    ephemeral_containers: Option<Vec<SpecContainer>>,
}

#[derive(Clone, Debug, Deserialize)]
struct SpecContainer {
    name: String,
    image: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    container_statuses: Option<Vec<StatusContainer>>,
    init_container_statuses: Option<Vec<StatusContainer>>,
    ephemeral_container_statuses: Option<Vec<StatusContainer>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusContainer {
    name: String,
    image: Option<String>,
    #[serde(rename = "imageID")]
    image_id: Option<String>,
    /// For example `containerd://` and the id; absent until the container exists.
    #[serde(rename = "containerID")]
    container_id: Option<String>,
}

impl From<&watcher::Error> for Failure {
    fn from(error: &watcher::Error) -> Self {
        let reason = match (cause::<io::Error>(error), cause::<kube::Error>(error)) {
            (Some(error), _) => Reason::from(error),
            (None, Some(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => Reason::Denied,
            (None, Some(kube::Error::Api(_))) => Reason::Refused,
            (None, Some(kube::Error::SerdeError(_))) => Reason::Malformed,
            _ => Reason::Closed,
        };
        Self::new(reason, chain(error))
    }
}

/// The containers of this node's pods.
#[derive(Default)]
struct Pods {
    listed: bool,
    failure: Option<(Instant, Failure)>,
    containers: HashMap<String, Bounded>,
    /// The ids of each pod's containers, by namespace and name.
    pods: HashMap<(Option<String>, Option<String>), Vec<String>>,
    /// An incomplete list, which replaces all pods once it is complete.
    next: Option<Box<Self>>,
    /// The number of pods in the incomplete list.
    received: usize,
}

impl Pods {
    fn apply(&mut self, event: Result<watcher::Event<Pod>, watcher::Error>) {
        self.failure = None;
        match event {
            Ok(watcher::Event::Init) => (self.next, self.received) = (Some(Box::default()), 0),
            Ok(watcher::Event::InitApply(pod)) => {
                self.received += 1;
                self.next.get_or_insert_default().insert(&pod);
            }
            Ok(watcher::Event::InitDone) => *self = Self { listed: true, ..*self.next.take().unwrap_or_default() },
            Ok(watcher::Event::Apply(pod)) => self.insert(&pod),
            Ok(watcher::Event::Delete(pod)) => self.remove(&pod.metadata),
            Err(error) => self.failure = Some((Instant::now(), Failure::from(&error))),
        }
    }

    /// Returns true if a list has more pods than a node.
    const fn is_endless(&self) -> bool {
        self.next.is_some() && self.received > CONTAINERS
    }

    /// Drops an incomplete list.
    fn abandon(&mut self) {
        self.next = None;
        let failure = Failure::new(Reason::Malformed, format_args!("a list has more than {CONTAINERS} pods"));
        self.failure = Some((Instant::now(), failure));
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.as_ref().filter(|(since, _)| since.elapsed() < DOUBT).map(|(_, failure)| failure.clone())
    }

    fn insert(&mut self, pod: &Pod) {
        self.remove(&pod.metadata);
        let names = [&pod.metadata.namespace, &pod.metadata.name].into_iter().flatten().map(String::len);
        if names.sum::<usize>() > LONGEST {
            return;
        }
        for (id, metadata) in containers(pod).filter(|(id, _)| id.len() <= LONGEST) {
            if self.containers.len() < CONTAINERS {
                self.containers.insert(id.clone(), Bounded::from(metadata));
                self.pods.entry(key(&pod.metadata)).or_default().push(id);
            }
        }
    }

    fn remove(&mut self, pod: &ObjectMeta) {
        for id in self.pods.remove(&key(pod)).unwrap_or_default() {
            self.containers.remove(&id);
        }
    }
}

fn key(pod: &ObjectMeta) -> (Option<String>, Option<String>) {
    (pod.namespace.clone(), pod.name.clone())
}

/// Returns the existing containers of a pod, by id.
fn containers(pod: &Pod) -> impl Iterator<Item = (String, Metadata)> {
    let Spec { containers, init_containers, ephemeral_containers } = &pod.spec;
    let specs = [containers, init_containers, ephemeral_containers].into_iter().flatten().flatten();
    let images: HashMap<&str, &str> =
        specs.filter_map(|container| Some((container.name.as_str(), container.image.as_deref()?))).collect();
    let statuses = pod.status.iter().flat_map(|status| {
        let Status { container_statuses, init_container_statuses, ephemeral_container_statuses } = status;
        [container_statuses, init_container_statuses, ephemeral_container_statuses].into_iter().flatten().flatten()
    });
    statuses.filter_map(move |status| {
        let (_, id) = status.container_id.as_deref()?.split_once("://")?;
        // The status has the image name as the runtime resolved it.
        let image = images.get(status.name.as_str()).copied().or(status.image.as_deref()).unwrap_or_default();
        let image = Image::parse(image, status.image_id.as_deref().unwrap_or_default());
        let metadata = Metadata {
            name: Some(status.name.clone()),
            image_name: image.name,
            image_tags: image.tags,
            pod: Some(pod_metadata(&pod.metadata, &status.name)),
            ..Metadata::default()
        };
        Some((id.to_owned(), metadata))
    })
}

fn pod_metadata(pod: &ObjectMeta, container: &str) -> PodMetadata {
    PodMetadata {
        uid: pod.uid.clone(),
        name: pod.name.clone(),
        namespace: pod.namespace.clone(),
        container: Some(container.to_owned()),
        labels: pod.labels.clone().unwrap_or_default(),
        annotations: pod.annotations.clone().unwrap_or_default(),
    }
}
