//! Names, images and labels of containers, from the API of the runtime that made them, or from Kubernetes. Asked off the
//! tick: every call, queue and reply is bounded, and what is not answered is named.

mod bounds;
mod containerd;
mod cri;
mod directory;
#[cfg_attr(not(feature = "docker"), path = "without_docker.rs")]
mod docker;
mod failure;
mod grpc;
mod image;
#[cfg_attr(not(feature = "kubernetes"), path = "without_kubernetes.rs")]
mod kubernetes;
mod opener;
mod pod;
mod question;
mod rooms;
mod source;
mod sources;
mod statistics;
#[cfg(test)]
mod tests;

pub use directory::{Answer, Directory, Unknown};
pub use failure::Reason;
pub use opener::Opener;
pub use question::Question;
pub use statistics::Statistics;
