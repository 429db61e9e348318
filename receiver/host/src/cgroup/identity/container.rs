//! Cgroup names that runtimes give to containers.

use super::{Above, ContainerId, PodUid, Runtime, User, pod, unit};

/// The identity in the name of a container's cgroup.
pub(super) struct Container {
    pub(super) id: ContainerId,
    pub(super) runtime: Option<Runtime>,
    pub(super) pod: Option<PodUid>,
}

/// A prefix of a cgroup name, and the runtime that writes it.
type Prefix = (&'static [u8], Runtime);

/// The prefixes before an id. The names of the monitors of Podman and CRI-O do not match: `libpod-conmon-` and
/// `crio-conmon-` precede their id. Podman writes `libpod-payload` in the cgroup of a service (`--cgroups=split`); the
/// monitor's cgroup is then the sibling `runtime`.
const PREFIXES: [Prefix; 6] = [
    (b"docker", Runtime::Docker),
    (b"cri-containerd", Runtime::Containerd),
    (b"nerdctl", Runtime::Containerd),
    (b"crio", Runtime::Crio),
    (b"libpod", Runtime::Podman),
    (b"libpod-payload", Runtime::Podman),
];

/// The prefixes that rootless runtimes write.
const ROOTLESS: [Prefix; 4] = [
    (b"docker", Runtime::Docker),
    (b"nerdctl", Runtime::Containerd),
    (b"libpod", Runtime::Podman),
    (b"libpod-payload", Runtime::Podman),
];

/// Returns the container with this cgroup name, given the names of its ancestors.
pub(super) fn named(name: &[u8], above: Above<'_>) -> Option<Container> {
    if let Some(user) = above.user {
        return rootless(name, user);
    }
    prefixed(name, &PREFIXES)
        .or_else(|| triple(name, &PREFIXES))
        .or_else(|| lxc(name, above))
        .or_else(|| bare(name, above))
        .or_else(|| machine(name, above))
}

/// Returns the container of a cgroup in a user's subtree. The user can choose any name there, so only names of rootless
/// runtimes are accepted: names of Podman at any depth, names of Docker and nerdctl below the user's service manager.
/// The subtree of a user never contains pods.
fn rootless(name: &[u8], user: User) -> Option<Container> {
    let container = prefixed(name, &ROOTLESS).or_else(|| triple(name, &ROOTLESS))?;
    let is_podman = container.runtime == Some(Runtime::Podman);
    (container.pod.is_none() && (is_podman || user.has_manager)).then_some(container)
}

/// Returns true for a container id of Docker, containerd, CRI-O or Podman: 64 lower-case hexadecimal digits.
pub(super) fn is_id(id: &[u8]) -> bool {
    id.len() == 64 && id.iter().all(pod::is_digit)
}

/// Returns true for the id of a BuildKit build step: 125 random bits in base 36.
fn is_step(id: &[u8]) -> bool {
    id.len() == 25 && id.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
}

fn container(id: &[u8], runtime: Option<Runtime>) -> Option<Container> {
    let id = str::from_utf8(id).ok().filter(|id| !id.is_empty())?;
    Some(Container { id: ContainerId(id.to_owned()), runtime, pod: None })
}

/// Parses `docker-ID.scope`, the name of a systemd unit. The suffix `.scope` is absent if the runtime created the
/// directory.
fn prefixed(name: &[u8], prefixes: &[Prefix]) -> Option<Container> {
    let name = name.strip_suffix(b".scope").unwrap_or(name);
    let (id, runtime) = prefixes.iter().find_map(|(prefix, runtime)| {
        let id = name.strip_prefix(*prefix)?.strip_prefix(b"-")?;
        is_id(id).then_some((id, *runtime))
    })?;
    container(id, Some(runtime))
}

/// Parses `SLICE:PREFIX:ID`, the notation of runtimes for systemd units. A runtime with the cgroupfs driver uses it as
/// the name of a directory.
fn triple(name: &[u8], prefixes: &[Prefix]) -> Option<Container> {
    let mut parts = name.rsplitn(3, |byte| *byte == b':');
    let (id, prefix, slice) = (parts.next()?, parts.next()?, parts.next()?);
    let (_, runtime) = prefixes.iter().find(|(known, _)| *known == prefix)?;
    let valid = is_id(id) || (*runtime == Runtime::Docker && is_step(id));
    let found = if valid { container(id, Some(*runtime)) } else { None }?;
    Some(Container { pod: pod::of_slice(slice), ..found })
}

/// Parses a bare id, the directory name that runtimes use with the cgroupfs driver.
fn bare(name: &[u8], above: Above<'_>) -> Option<Container> {
    let runtime = match above.names {
        [Some(b"buildkit"), Some(b"docker")] if is_step(name) => Some(Runtime::Docker),
        _ if !is_id(name) => return None,
        [Some(b"docker"), _] | [Some(b"buildx"), Some(b"docker")] => Some(Runtime::Docker),
        [Some(b"default" | b"k8s.io"), None] => Some(Runtime::Containerd),
        _ if above.in_pod => None,
        // Podman gives its pods the id format of containers.
        [Some(b"libpod_parent"), _] => return None,
        // Docker and containerd accept any parent cgroup. Names inside of the cgroup of a service
        // or a container are not trusted.
        _ if above.delegated => return None,
        _ => None,
    };
    container(name, runtime)
}

/// Parses the names of LXC: `lxc/NAME` up to version 3.0 and in Proxmox, then `lxc.payload/NAME`, and
/// `lxc.payload.NAME` since 4.0. LXC appends `-1` to the second cgroup of a name, which is ambiguous with a name that
/// ends in `-1`.
fn lxc(name: &[u8], above: Above<'_>) -> Option<Container> {
    let id = match above.names[0] {
        Some(b"lxc" | b"lxc.payload") => name,
        _ => name.strip_prefix(b"lxc.payload.")?,
    };
    container(id, Some(Runtime::Lxc))
}

/// Parses the names of systemd-nspawn: a configured service, or a scope that systemd-machined created.
fn machine(name: &[u8], above: Above<'_>) -> Option<Container> {
    let service = name.strip_prefix(b"systemd-nspawn@").and_then(|name| name.strip_suffix(b".service"));
    let scope = || {
        let name = name.strip_prefix(b"machine-")?.strip_suffix(b".scope")?;
        // systemd escapes a dash in the name of the machine.
        (above.names[0] == Some(b"machine.slice") && !name.contains(&b'-')).then_some(name)
    };
    let id = unit::unescape(service.or_else(scope)?)?;
    let valid = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if valid && !is_domain(&id) { container(id.as_bytes(), Some(Runtime::Nspawn)) } else { None }
}

/// Returns true if libvirt registered the machine. The name then contains the driver, and the number and name of the
/// domain. The unit is usually a virtual machine.
fn is_domain(machine: &str) -> bool {
    let mut parts = machine.splitn(3, '-');
    let (driver, number) = (parts.next(), parts.next());
    matches!(driver, Some("qemu" | "lxc" | "ch"))
        && number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        && parts.next().is_some()
}
