//! The used fields of CRI messages, with the field numbers of `runtime.v1` in api.proto of kubernetes/cri-api. The
//! decoder skips other fields. Crates with generated messages would require a protobuf compiler for every build.

use std::collections::BTreeMap;

use prost::Message;

#[cfg(test)]
pub const LIST_CONTAINERS: &str = "/runtime.v1.RuntimeService/ListContainers";
#[cfg(test)]
pub const CONTAINER_STATUS: &str = "/runtime.v1.RuntimeService/ContainerStatus";
#[cfg(test)]
pub const LIST_PODS: &str = "/runtime.v1.RuntimeService/ListPodSandbox";

/// Of `ListContainersRequest` and `ListPodSandboxRequest`.
#[cfg(test)]
#[derive(Clone, PartialEq, Message)]
pub struct ListRequest {
    #[prost(message, optional, tag = "1")]
    pub filter: Option<Filter>,
}

/// Of `ContainerFilter` and `PodSandboxFilter`.
#[cfg(test)]
#[derive(Clone, PartialEq, Message)]
pub struct Filter {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListContainersResponse {
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<Container>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Container {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "4")]
    pub image: Option<ImageSpec>,
    #[prost(string, tag = "5")]
    pub image_ref: String,
    #[prost(btree_map = "string, string", tag = "8")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ImageSpec {
    #[prost(string, tag = "1")]
    pub image: String,
    /// The image name in the pod's manifest; empty in older kubelets.
    #[prost(string, tag = "18")]
    pub user_specified_image: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContainerStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<ContainerStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContainerStatus {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "8")]
    pub image: Option<ImageSpec>,
    #[prost(string, tag = "9")]
    pub image_ref: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListPodSandboxResponse {
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<PodSandbox>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandbox {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
}
