//! Directories that runtimes make to group their containers, and that hold no processes themselves.

use super::{container, pod};

/// Whether a directory of this name, below these, is one.
pub(super) fn contains(name: &[u8], above: [Option<&[u8]>; 2]) -> bool {
    match (above[0], name) {
        (_, b"docker" | b"kubepods" | b"libpod_parent" | b"lxc" | b"lxc.payload" | b"lxc.monitor") => true,
        (Some(b"docker"), b"buildkit" | b"buildx") => true,
        (Some(b"kubepods"), b"burstable" | b"besteffort") => true,
        // containerd's namespaces, the parents that Amazon's agent and two build services give Docker.
        (None, b"default" | b"k8s.io" | b"ecs" | b"actions_job" | b"azpl_job") => true,
        // Podman's pods.
        (Some(b"libpod_parent"), pod) => container::is_id(pod),
        // Tasks of Amazon's agent.
        (Some(b"ecs"), task) => task.len() == 32 && task.iter().all(pod::is_digit),
        _ => false,
    }
}
