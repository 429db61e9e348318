//! The Container Runtime Interface, which containerd, CRI-O and cri-dockerd serve for the kubelet.

pub(super) mod messages;

use self::messages::{
    Container, ContainerStatus, ContainerStatusResponse, ImageSpec, ListContainersResponse, ListPodSandboxResponse,
    PodSandbox,
};
use super::{
    failure::{Failure, Reason},
    grpc::Socket,
    image::Image,
    pod,
    runtimes::Runtimes,
};
use crate::{
    ContainerId, Metadata, PodMetadata,
    reader::{Endpoint, Query},
};

/// A client of one socket.
pub(super) struct Cri {
    socket: Socket,
}

impl Cri {
    pub(super) fn new(endpoint: &Endpoint, runtimes: &Runtimes) -> Self {
        Self { socket: Socket::new(endpoint, runtimes) }
    }

    /// Returns the metadata of a container, or of the sandbox of a pod.
    pub(super) async fn container(&self, id: &ContainerId) -> Result<Metadata, Failure> {
        let listed: ListContainersResponse = self.socket.call(Query::ListContainers(id.0.clone())).await?;
        match listed.containers.into_iter().next() {
            Some(container) if container.id == id.0 => self.metadata(container).await,
            Some(other) => Err(Failure::another(&id.0, &other.id)),
            None => match self.pod(&id.0).await? {
                Some(pod) => Ok(Metadata { pod: Some(pod), ..Metadata::default() }),
                None => Err(Failure::new(Reason::NotFound, "neither a container nor a pod's sandbox")),
            },
        }
    }

    async fn metadata(&self, container: Container) -> Result<Metadata, Failure> {
        let image = self.image(&container).await?;
        let name = container.metadata.map(|metadata| metadata.name).filter(|name| !name.is_empty());
        let pod = match self.pod(&container.pod_sandbox_id).await? {
            Some(pod) => Some(PodMetadata { container: name.clone(), ..pod }),
            None => pod::from_labels(&container.labels),
        };
        Ok(Metadata { name, image_name: image.name, image_tags: image.tags, labels: container.labels, pod })
    }

    /// Returns the image. containerd lists the resolved image id in the place of the name; the status has the name.
    async fn image(&self, container: &Container) -> Result<Image, Failure> {
        let listed = written(container.image.as_ref(), &container.image_ref);
        if listed.name.is_some() {
            return Ok(listed);
        }
        let answer: ContainerStatusResponse = self.socket.call(Query::ContainerStatus(container.id.clone())).await?;
        match answer.status {
            Some(ContainerStatus { id, image, image_ref }) if id == container.id => {
                Ok(written(image.as_ref(), &image_ref))
            }
            other => Err(Failure::another(&container.id, &other.unwrap_or_default().id)),
        }
    }

    async fn pod(&self, sandbox: &str) -> Result<Option<PodMetadata>, Failure> {
        if sandbox.is_empty() {
            return Ok(None);
        }
        let listed: ListPodSandboxResponse = self.socket.call(Query::ListPodSandbox(sandbox.to_owned())).await?;
        match listed.items.into_iter().next() {
            Some(PodSandbox { id, .. }) if id != sandbox => Err(Failure::another(sandbox, &id)),
            listed => Ok(listed.map(of_sandbox)),
        }
    }
}

fn written(image: Option<&ImageSpec>, reference: &str) -> Image {
    let Some(image) = image else { return Image::default() };
    let by_user = Image::parse(&image.user_specified_image, reference);
    if by_user.name.is_some() { by_user } else { Image::parse(&image.image, reference) }
}

fn of_sandbox(sandbox: PodSandbox) -> PodMetadata {
    let known = |text: String| (!text.is_empty()).then_some(text);
    let metadata = sandbox.metadata.unwrap_or_default();
    let mut pod = PodMetadata {
        uid: known(metadata.uid),
        name: known(metadata.name),
        namespace: known(metadata.namespace),
        container: None,
        labels: sandbox.labels,
        annotations: sandbox.annotations,
    };
    pod::as_the_api_server_has_it(&mut pod);
    pod
}
