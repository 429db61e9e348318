//! The used fields of containerd's messages, with the field numbers of `containerd.services` in containerd/containerd.
//! The decoder skips other fields, for example a container's specification. Crates with generated messages would
//! require a protobuf compiler for every build.

use std::collections::BTreeMap;

use prost::Message;

#[cfg(test)]
pub const LIST_NAMESPACES: &str = "/containerd.services.namespaces.v1.Namespaces/List";
#[cfg(test)]
pub const GET_CONTAINER: &str = "/containerd.services.containers.v1.Containers/Get";
/// The header with the namespace of a container.
#[cfg(test)]
pub const NAMESPACE: &str = "containerd-namespace";

#[derive(Clone, PartialEq, Message)]
pub struct ListNamespacesResponse {
    #[prost(message, repeated, tag = "1")]
    pub namespaces: Vec<Namespace>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Namespace {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[cfg(test)]
#[derive(Clone, PartialEq, Message)]
pub struct GetContainerRequest {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetContainerResponse {
    #[prost(message, optional, tag = "1")]
    pub container: Option<Container>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Container {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub labels: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    pub image: String,
}
