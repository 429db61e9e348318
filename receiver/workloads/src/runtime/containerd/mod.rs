//! The API of containerd, for containers that CRI does not list: containers of nerdctl and ctr.

pub(super) mod messages;

use self::messages::{Container, GetContainerResponse, ListNamespacesResponse};
use super::{
    failure::{Failure, Reason},
    grpc::Socket,
    image::Image,
    pod,
    runtimes::Runtimes,
};
use crate::{
    ContainerId, Metadata,
    reader::{Endpoint, Query},
};

/// Docker's namespace. Its containers have no names or images in containerd; Docker's API has them.
const DOCKER: &str = "moby";
/// The maximum number of namespaces in a search.
const NAMESPACES: usize = 32;
/// nerdctl's label for the user-chosen name.
const NAME: &str = "nerdctl/name";

/// A client of one socket.
pub(super) struct Containerd {
    socket: Socket,
}

impl Containerd {
    pub(super) fn new(endpoint: &Endpoint, runtimes: &Runtimes) -> Self {
        Self { socket: Socket::new(endpoint, runtimes) }
    }

    pub(super) async fn container(&self, id: &ContainerId) -> Result<Metadata, Failure> {
        let listed: ListNamespacesResponse = self.socket.call(Query::ListNamespaces).await?;
        let names = listed.namespaces.into_iter().map(|namespace| namespace.name);
        for namespace in names.filter(|name| name != DOCKER).take(NAMESPACES) {
            match self.get(id, &namespace).await {
                Err(failure) if failure.reason == Reason::NotFound => {}
                answer => return answer.map(metadata),
            }
        }
        Err(Failure::new(Reason::NotFound, "in no namespace"))
    }

    async fn get(&self, id: &ContainerId, namespace: &str) -> Result<Container, Failure> {
        let query = Query::GetContainer { namespace: namespace.to_owned(), id: id.0.clone() };
        let answer: GetContainerResponse = self.socket.call(query).await?;
        match answer.container {
            Some(container) if container.id == id.0 => Ok(container),
            other => Err(Failure::another(&id.0, &other.unwrap_or_default().id)),
        }
    }
}

fn metadata(container: Container) -> Metadata {
    let image = Image::parse(&container.image, "");
    Metadata {
        name: container.labels.get(NAME).filter(|name| !name.is_empty()).cloned(),
        image_name: image.name,
        image_tags: image.tags,
        pod: pod::from_labels(&container.labels),
        labels: container.labels,
    }
}
