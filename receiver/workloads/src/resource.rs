//! Resource attributes of a workload, by the semantic conventions 1.44.

use super::{
    CgroupPath, Identity, Metadata, PodMetadata, PodUid, Service,
    metadata::{
        ANNOTATION_ENVIRONMENT, ANNOTATION_NAME, ANNOTATION_NAMESPACE, ANNOTATION_VERSION, COMPOSE_SERVICE,
        LABEL_INSTANCE, LABEL_NAME, LABEL_VERSION,
    },
};
use crate::{
    cgroup::Instance,
    telemetry::{Attributes, Resource, Value, host_key, instance_id},
    text::{LONGEST, attribute, shortened},
};

/// Prefixes of attributes that describe the sidecar's own process, container or pod. Node and cluster attributes apply
/// to all workloads.
const OWN: [&str; 5] = ["container.", "k8s.", "process.", "service.", "telemetry."];
const SHARED: [&str; 2] = ["k8s.cluster.", "k8s.node."];

const RUNTIME: &str = "the runtime";
const POD: &str = "the runtime, else the Kubernetes API";

/// The attributes of a workload besides the attributes of its host, each with its source.
pub const ATTRIBUTES: [(&str, &str); 17] = [
    ("container.id", "the path of the cgroup"),
    ("container.runtime.name", "the path of the cgroup"),
    ("container.name", "the runtime; the path of the cgroup for LXC and systemd-nspawn"),
    ("container.image.name", RUNTIME),
    ("container.image.tags", RUNTIME),
    ("k8s.pod.uid", "the path of the cgroup; the Kubernetes API for static pods"),
    ("k8s.pod.name", POD),
    ("k8s.namespace.name", POD),
    ("k8s.container.name", POD),
    ("undercurrent.workload.cgroup", "the path of the cgroup, for workloads other than containers"),
    ("undercurrent.workload.unit", "the path of the cgroup, for units of systemd"),
    (
        "service.name",
        "`OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` of the workload's process; else annotations and labels of the pod, \
         in the order of the semantic conventions; else the service of a compose file",
    ),
    (
        "service.namespace",
        "the process; else an annotation or the namespace of the pod, if the pod has the `service.name`",
    ),
    ("service.version", "the process; else an annotation or a label of the pod, if the process has no `service.name`"),
    (
        "deployment.environment.name",
        "the process, else an annotation of the pod, else `resource.attributes` of the sidecar",
    ),
    (
        "service.instance.id",
        "a UUIDv5 of the host's id and the id of the container or pod; of the cgroup's path below a user, a container or a unit",
    ),
    ("otel.metric.overflow", "`true` for the common resource of all workloads beyond `workloads.limit`"),
];

/// The workload that a resource describes.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The kind of workload.
    pub identity: &'a Identity,
    /// The path of its own cgroup.
    pub path: &'a CgroupPath,
    /// The kind and name that are unique to the workload.
    pub instance: Instance<'a>,
}

/// Returns the resource of a workload: host attributes, identity and service.
///
/// `service.instance.id` is the UUIDv5, in [`INSTANCE_NAMESPACE`](crate::telemetry::INSTANCE_NAMESPACE), of texts with a
/// NUL between each: the host's id and name, as [`Resource::node`] picks them; `container`, `pod` or `cgroup`; and the
/// container's id, the pod's uid or the cgroup's path. Where the host has neither, the node's `service.instance.id` is the
/// first text.
///
/// Only containers and pods of the system use their ids. The cgroup's path replaces the id in a user's subtree, and inside of a
/// unit, a container or another workload, where a name may contain any id. It also replaces the names of LXC and
/// systemd-nspawn, which repeat, and the id of the second of two cgroups with the same id.
///
/// The process's own `service.name` has priority. Next is the pod's, by the conventions' "Specify resource attributes
/// using Kubernetes annotations": an annotation, then the labels `app.kubernetes.io/instance` and
/// `app.kubernetes.io/name`. The conventions then use the names of the pod's owners. Only the API server knows these,
/// so they are left to the collector. The last source is the service label of a compose file. The pod's namespace and
/// version apply only to the pod's service name, because names from other sources are unique in another namespace.
///
/// The pod uid is from the path, except for static pods. Metadata of another pod are dropped, and so are metadata of
/// any pod if the path contains none: the labels of an image can claim a pod.
#[must_use]
pub fn resource(
    host: &Attributes,
    subject: &Subject<'_>,
    metadata: Option<&Metadata>,
    service: Option<&Service>,
) -> Resource {
    let unknown = Metadata::default();
    let metadata = metadata.unwrap_or(&unknown);
    let pod = metadata.pod.as_ref().filter(|pod| pod_of(subject.identity).is_some_and(|uid| pod.is_about(uid)));
    let mut builder = Builder::on(host);
    builder.identity(subject.identity, subject.path, metadata, pod);
    builder.service(service, metadata, pod);
    builder.instance(host, subject.instance);
    Resource { attributes: builder.0 }
}

/// Returns the shared resource of all workloads in the overflow.
#[must_use]
pub fn overflow(host: &Attributes) -> Resource {
    let mut builder = Builder::on(host);
    builder.set("otel.metric.overflow", true);
    builder.instance(host, ("overflow", b""));
    Resource { attributes: builder.0 }
}

/// Returns the pod in the path.
fn pod_of(identity: &Identity) -> Option<&PodUid> {
    match identity {
        Identity::Container { pod, .. } => pod.as_ref(),
        Identity::Pod(uid) => Some(uid),
        Identity::Unit(_) | Identity::Cgroup => None,
    }
}

struct Builder(Attributes);

impl Builder {
    /// Copies the attributes that all workloads on the host share.
    fn on(host: &Attributes) -> Self {
        let begins = |key: &str, prefixes: &[&str]| prefixes.iter().any(|prefix| key.starts_with(prefix));
        let mut common = Attributes::new();
        for (key, value) in host.iter().filter(|(key, _)| !begins(key, &OWN) || begins(key, &SHARED)) {
            common.set(key.to_owned(), value.clone());
        }
        Self(common)
    }

    /// Sets an attribute of [`ATTRIBUTES`].
    fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        debug_assert!(ATTRIBUTES.iter().any(|(documented, _)| *documented == key), "{key} has no documented source");
        self.0.set(key, value);
    }

    /// Sets a known text, unless it exceeds the limit after escaping.
    fn text(&mut self, key: &'static str, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()).and_then(|text| attribute(text, LONGEST)) {
            self.set(key, text.into_owned());
        }
    }

    fn texts(&mut self, key: &'static str, texts: &[String]) {
        let texts: Vec<String> = texts.iter().filter_map(|text| Some(attribute(text, LONGEST)?.into_owned())).collect();
        if !texts.is_empty() {
            self.set(key, texts);
        }
    }

    fn identity(&mut self, identity: &Identity, path: &CgroupPath, metadata: &Metadata, of_pod: Option<&PodMetadata>) {
        match identity {
            Identity::Container { id, runtime, pod } => {
                self.text("container.id", Some(&id.0));
                let named = runtime.filter(|runtime| runtime.identifies_by_name()).map(|_| id.0.as_str());
                self.text("container.name", metadata.name.as_deref().or(named));
                self.text("container.runtime.name", runtime.map(|runtime| runtime.as_str()));
                self.text("container.image.name", metadata.image_name.as_deref());
                self.texts("container.image.tags", &metadata.image_tags);
                self.pod(pod.as_ref(), of_pod);
                self.text("k8s.container.name", of_pod.and_then(|pod| pod.container.as_deref()));
                return;
            }
            Identity::Pod(uid) => self.pod(Some(uid), of_pod),
            // The conventions define no attribute for systemd units.
            Identity::Unit(name) => self.text("undercurrent.workload.unit", Some(name)),
            Identity::Cgroup => {}
        }
        self.set("undercurrent.workload.cgroup", shortened(&path.to_string(), LONGEST).into_owned());
    }

    fn pod(&mut self, uid: Option<&PodUid>, metadata: Option<&PodMetadata>) {
        let known = metadata.and_then(|pod| pod.uid.as_deref());
        self.text("k8s.pod.uid", known.or(uid.map(|uid| uid.0.as_str())));
        self.text("k8s.pod.name", metadata.and_then(|pod| pod.name.as_deref()));
        self.text("k8s.namespace.name", metadata.and_then(|pod| pod.namespace.as_deref()));
    }

    fn service(&mut self, own: Option<&Service>, metadata: &Metadata, pod: Option<&PodMetadata>) {
        let own = own.cloned().unwrap_or_default();
        let pod = pod.map(of_pod).unwrap_or_default();
        let compose = COMPOSE_SERVICE.iter().find_map(|label| metadata.labels.get(*label));
        let other = if own.name.is_some() { Service::default() } else { pod.clone() };
        self.text("service.name", own.name.as_deref().or(other.name.as_deref()).or(compose.map(String::as_str)));
        let namespace = other.namespace.as_deref().filter(|_| other.name.is_some());
        self.text("service.namespace", own.namespace.as_deref().or(namespace));
        self.text("service.version", own.version.as_deref().or(other.version.as_deref()));
        let environment = own.environment.as_deref().or(pod.environment.as_deref());
        self.text("deployment.environment.name", environment);
    }

    fn instance(&mut self, host: &Attributes, (kind, name): Instance<'_>) {
        let of_node = || host.get("service.instance.id").map(ToString::to_string);
        if let Some(host) = host_key(host).or_else(of_node) {
            self.set("service.instance.id", instance_id(&[host.as_bytes(), kind.as_bytes(), name].join(&0)));
        }
    }
}

/// Returns the service in a pod's annotations and well-known labels.
fn of_pod(pod: &PodMetadata) -> Service {
    let PodMetadata { labels, annotations, namespace, .. } = pod;
    let named = [annotations.get(ANNOTATION_NAME), labels.get(LABEL_INSTANCE), labels.get(LABEL_NAME)];
    Service {
        name: named.into_iter().flatten().next().cloned(),
        namespace: annotations.get(ANNOTATION_NAMESPACE).or(namespace.as_ref()).cloned(),
        version: annotations.get(ANNOTATION_VERSION).or_else(|| labels.get(LABEL_VERSION)).cloned(),
        environment: annotations.get(ANNOTATION_ENVIRONMENT).cloned(),
    }
}

#[cfg(test)]
mod tests;
