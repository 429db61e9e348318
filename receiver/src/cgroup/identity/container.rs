//! The names that runtimes give the cgroups of containers.

use super::{Above, ContainerId, PodUid, Runtime, User, pod, unit};

/// What a container's name says.
pub(super) struct Container {
    pub(super) id: ContainerId,
    pub(super) runtime: Option<Runtime>,
    pub(super) pod: Option<PodUid>,
}

/// A prefix of a cgroup's name, and the runtime that writes it.
type Prefix = (&'static [u8], Runtime);

/// What stands before an id. The monitors are no containers: what follows `libpod-` or `crio-` is then `conmon-` and an
/// id. `libpod-payload` is Podman's in a service's own cgroup (`--cgroups=split`), with the monitor beside it in `runtime`.
const PREFIXES: [Prefix; 6] = [
    (b"docker", Runtime::Docker),
    (b"cri-containerd", Runtime::Containerd),
    (b"nerdctl", Runtime::Containerd),
    (b"crio", Runtime::Crio),
    (b"libpod", Runtime::Podman),
    (b"libpod-payload", Runtime::Podman),
];

/// The prefixes that runtimes without root privileges write.
const ROOTLESS: [Prefix; 4] = [
    (b"docker", Runtime::Docker),
    (b"nerdctl", Runtime::Containerd),
    (b"libpod", Runtime::Podman),
    (b"libpod-payload", Runtime::Podman),
];

/// The container whose own cgroup has this name, below these.
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

/// A container in a user's subtree. The user can choose any name there, so only the names of rootless runtimes count: Podman's
/// anywhere, those of Docker and nerdctl below the user's service manager. Pods are never in a user's subtree.
fn rootless(name: &[u8], user: User) -> Option<Container> {
    let container = prefixed(name, &ROOTLESS).or_else(|| triple(name, &ROOTLESS))?;
    let is_podman = container.runtime == Some(Runtime::Podman);
    (container.pod.is_none() && (is_podman || user.has_manager)).then_some(container)
}

/// Whether Docker, containerd, CRI-O or Podman could have made it: 64 lower-case hexadecimal digits.
pub(super) fn is_id(id: &[u8]) -> bool {
    id.len() == 64 && id.iter().all(pod::is_digit)
}

/// Whether BuildKit could have made it for a step of a build: 125 random bits to the base of 36.
fn is_step(id: &[u8]) -> bool {
    id.len() == 25 && id.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
}

fn container(id: &[u8], runtime: Option<Runtime>) -> Option<Container> {
    let id = str::from_utf8(id).ok().filter(|id| !id.is_empty())?;
    Some(Container { id: ContainerId(id.to_owned()), runtime, pod: None })
}

/// `docker-ID.scope`, as systemd has it; without `.scope` where the runtime made the directory.
fn prefixed(name: &[u8], prefixes: &[Prefix]) -> Option<Container> {
    let name = name.strip_suffix(b".scope").unwrap_or(name);
    let (id, runtime) = prefixes.iter().find_map(|(prefix, runtime)| {
        let id = name.strip_prefix(*prefix)?.strip_prefix(b"-")?;
        is_id(id).then_some((id, *runtime))
    })?;
    container(id, Some(runtime))
}

/// `SLICE:PREFIX:ID`, how runtimes write systemd's units to each other: one that manages cgroups itself takes it for a
/// directory's name.
fn triple(name: &[u8], prefixes: &[Prefix]) -> Option<Container> {
    let mut parts = name.rsplitn(3, |byte| *byte == b':');
    let (id, prefix, slice) = (parts.next()?, parts.next()?, parts.next()?);
    let (_, runtime) = prefixes.iter().find(|(known, _)| *known == prefix)?;
    let valid = is_id(id) || (*runtime == Runtime::Docker && is_step(id));
    let found = if valid { container(id, Some(*runtime)) } else { None }?;
    Some(Container { pod: pod::of_slice(slice), ..found })
}

/// An id alone, as the runtimes that manage cgroups themselves name directories.
fn bare(name: &[u8], above: Above<'_>) -> Option<Container> {
    let runtime = match above.names {
        [Some(b"buildkit"), Some(b"docker")] if is_step(name) => Some(Runtime::Docker),
        _ if !is_id(name) => return None,
        [Some(b"docker"), _] | [Some(b"buildx"), Some(b"docker")] => Some(Runtime::Docker),
        [Some(b"default" | b"k8s.io"), None] => Some(Runtime::Containerd),
        _ if above.in_pod => None,
        // Podman's pods have such ids, too.
        [Some(b"libpod_parent"), _] => return None,
        // Docker and containerd take any parent; but what a service or a container makes of its own cgroup is its affair.
        _ if above.delegated => return None,
        _ => None,
    };
    container(name, runtime)
}

/// LXC's names: up to version 3.0, and in Proxmox, `lxc/NAME`; then `lxc.payload/NAME`; since 4.0 `lxc.payload.NAME`. The
/// second cgroup of a name ends in `-1`, and so may a name.
fn lxc(name: &[u8], above: Above<'_>) -> Option<Container> {
    let id = match above.names[0] {
        Some(b"lxc" | b"lxc.payload") => name,
        _ => name.strip_prefix(b"lxc.payload.")?,
    };
    container(id, Some(Runtime::Lxc))
}

/// systemd-nspawn's names: of a service that somebody configured, or of a scope that systemd-machined made.
fn machine(name: &[u8], above: Above<'_>) -> Option<Container> {
    let service = name.strip_prefix(b"systemd-nspawn@").and_then(|name| name.strip_suffix(b".service"));
    let scope = || {
        let name = name.strip_prefix(b"machine-")?.strip_suffix(b".scope")?;
        // A dash of the machine's own name is escaped.
        (above.names[0] == Some(b"machine.slice") && !name.contains(&b'-')).then_some(name)
    };
    let id = unit::unescape(service.or_else(scope)?)?;
    let valid = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if valid && !is_domain(&id) { container(id.as_bytes(), Some(Runtime::Nspawn)) } else { None }
}

/// Whether libvirt registered the machine: as its driver, the domain's number and name. That is a unit, and mostly a
/// virtual machine.
fn is_domain(machine: &str) -> bool {
    let mut parts = machine.splitn(3, '-');
    let (driver, number) = (parts.next(), parts.next());
    matches!(driver, Some("qemu" | "lxc" | "ch"))
        && number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        && parts.next().is_some()
}
