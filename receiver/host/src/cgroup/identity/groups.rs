//! Directories that runtimes create to group containers. They contain no processes.

use super::{container, pod};

/// Returns true if a directory with this name and these parents is such a group.
pub(super) fn contains(name: &[u8], above: [Option<&[u8]>; 2]) -> bool {
    match (above[0], name) {
        (_, b"docker" | b"kubepods" | b"libpod_parent" | b"lxc" | b"lxc.payload" | b"lxc.monitor") => true,
        (Some(b"docker"), b"buildkit" | b"buildx") => true,
        (Some(b"kubepods"), b"burstable" | b"besteffort") => true,
        // Namespaces of containerd; parent cgroups that the ECS agent and two build services pass to Docker.
        (None, b"default" | b"k8s.io" | b"ecs" | b"actions_job" | b"azpl_job") => true,
        // Pods of Podman.
        (Some(b"libpod_parent"), pod) => container::is_id(pod),
        // Tasks of the ECS agent.
        (Some(b"ecs"), task) => task.len() == 32 && task.iter().all(pod::is_digit),
        _ => false,
    }
}
