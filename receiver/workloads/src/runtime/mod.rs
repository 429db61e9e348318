//! Names, images and labels of containers, from the API of the runtime or from Kubernetes. Calls run outside of the
//! tick. Every call, queue and reply is bounded, and failures are counted by reason.

mod admission;
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
mod lookup;
mod pod;
mod replay;
mod runtimes;
mod source;
mod sources;
mod statistics;
#[cfg(test)]
mod tests;

pub use directory::{Directory, LookupResult};
pub use failure::{Reason, Unknown};
pub use lookup::Lookup;
pub use runtimes::Runtimes;
pub use statistics::Statistics;
