//! A Docker engine of a test's own, apart from any other on the machine, and images for it that nobody had to pull.

mod cgroup;
mod engine;
pub mod images;

pub use cgroup::Cgroups;
pub use engine::Engine;
