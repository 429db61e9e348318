//! Names and ids of this node, and the release of its operating system.

use std::{fs, path::Path};

use sysinfo::System;

use crate::{
    environment::{Environment, value},
    namespaces::Namespace,
};

/// The root of the host's first process. A container in the host's PID namespace sees the host's files there.
const HOST_ROOT: &str = "/proc/1/root";
/// Paths in the order of os-release(5).
const OS_RELEASE: [&str; 2] = ["etc/os-release", "usr/lib/os-release"];
/// Paths in the order of machine-id(5). The second is the original one of D-Bus.
const MACHINE_ID: [&str; 2] = ["etc/machine-id", "var/lib/dbus/machine-id"];
/// Conventional names of variables that the downward API sets.
const KUBERNETES_NODE: [&str; 2] = ["K8S_NODE_NAME", "NODE_NAME"];

/// The kernel, as `uname` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The node's name.
    pub node_name: String,
    /// True if the name is the host's. The name of a container changes at each start.
    pub is_name_of_host: bool,
    /// The kernel's release, for example `6.1.0-18-amd64`.
    pub release: String,
    /// The machine's architecture, for example `x86_64`.
    pub machine: String,
}

impl Kernel {
    /// Returns the running kernel.
    #[must_use]
    pub fn running() -> Self {
        Self {
            node_name: System::host_name().unwrap_or_default(),
            is_name_of_host: Namespace::Uts.is_initial(),
            release: System::kernel_version().unwrap_or_default(),
            machine: System::cpu_arch(),
        }
    }
}

/// A node. Unknown properties are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kernel.
    pub kernel: Kernel,
    /// The machine id, 32 hexadecimal digits.
    pub machine_id: Option<String>,
    /// The distribution.
    pub os: OsRelease,
    /// The node's name in Kubernetes.
    pub kubernetes_name: Option<String>,
}

/// The content of os-release(5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsRelease {
    /// `NAME`.
    pub name: Option<String>,
    /// `VERSION_ID`.
    pub version: Option<String>,
    /// `PRETTY_NAME`.
    pub description: Option<String>,
    /// `BUILD_ID`.
    pub build_id: Option<String>,
}

impl Node {
    /// Describes this node. In a container it describes the host, if the host's files are readable.
    #[must_use]
    pub fn detect(environment: Environment<'_>) -> Self {
        let (root, mut kernel) = (host_root(), Kernel::running());
        if !kernel.is_name_of_host
            && root == Path::new(HOST_ROOT)
            && let Some(name) = host_name(root)
        {
            (kernel.node_name, kernel.is_name_of_host) = (name, true);
        }
        Self::read(root, kernel, environment)
    }

    /// Describes the node with its files below `root`.
    #[must_use]
    pub fn read(root: &Path, kernel: Kernel, environment: Environment<'_>) -> Self {
        Self {
            kernel,
            machine_id: MACHINE_ID.iter().find_map(|path| machine_id(&fs::read_to_string(root.join(path)).ok()?)),
            os: OS_RELEASE
                .iter()
                .find_map(|path| fs::read_to_string(root.join(path)).ok())
                .map_or_else(OsRelease::default, |text| os_release(&text)),
            kubernetes_name: KUBERNETES_NODE.iter().find_map(|name| value(environment, name)),
        }
    }
}

/// Returns the host's root, or this process's root if the host's is not readable. Reading another process's root
/// requires the right to trace that process.
pub fn host_root() -> &'static Path {
    let root = Path::new(HOST_ROOT);
    let visible = MACHINE_ID.iter().chain(&OS_RELEASE).any(|path| root.join(path).is_file());
    if visible { root } else { Path::new("/") }
}

/// Returns the host's name in hostname(5).
fn host_name(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("etc/hostname")).ok()?;
    let name = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?;
    (name.len() <= 64).then(|| name.to_owned())
}

/// Parses a machine id. Images ship an empty file or `uninitialized`, which the first boot replaces.
fn machine_id(text: &str) -> Option<String> {
    let id = text.trim();
    let valid =
        id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) && id.bytes().any(|byte| byte != b'0');
    valid.then(|| id.to_ascii_lowercase())
}

fn os_release(text: &str) -> OsRelease {
    let mut release = OsRelease::default();
    for (key, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
        let field = match key {
            "NAME" => &mut release.name,
            "VERSION_ID" => &mut release.version,
            "PRETTY_NAME" => &mut release.description,
            "BUILD_ID" => &mut release.build_id,
            _ => continue,
        };
        *field = Some(unquote(value)).filter(|value| !value.is_empty());
    }
    release
}

/// Removes the quotes and backslashes that os-release(5) allows in values.
fn unquote(value: &str) -> String {
    let inner = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    let mut escaped = false;
    let keep = |character: &char| {
        escaped = *character == '\\' && !escaped && !value.starts_with('\'');
        !escaped
    };
    inner.unwrap_or(value).chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        Kernel {
            node_name: "n1".to_owned(),
            is_name_of_host: true,
            release: "6.1.0".to_owned(),
            machine: "x86_64".to_owned(),
        }
    }

    fn node(files: &[(&str, &str)]) -> Node {
        let root = tempfile::tempdir().expect("a folder");
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            fs::write(path, content).expect("written");
        }
        Node::read(root.path(), kernel(), &|_| None)
    }

    #[test]
    fn a_node_without_files_has_its_kernel() {
        let expected = Node { kernel: kernel(), machine_id: None, os: OsRelease::default(), kubernetes_name: None };
        assert_eq!(node(&[]), expected);
    }

    #[test]
    fn the_name_of_the_host_is_read() {
        let root = tempfile::tempdir().expect("a folder");
        assert_eq!(host_name(root.path()), None);
        fs::create_dir(root.path().join("etc")).expect("created");
        for (text, name) in [("# comment\n\n node-7\n", Some("node-7")), ("\n", None), (&"x".repeat(65), None)] {
            fs::write(root.path().join("etc/hostname"), text).expect("written");
            assert_eq!(host_name(root.path()).as_deref(), name, "{text}");
        }
    }

    #[test]
    fn invalid_machine_ids_are_ignored() {
        let id = "3d1219c7c4c5404aaa1f6d2a48adfda4";
        let read = |files: &[(&str, &str)]| node(files).machine_id;
        assert_eq!(read(&[("etc/machine-id", &format!("{id}\n"))]).as_deref(), Some(id));
        assert_eq!(read(&[("etc/machine-id", &id.to_uppercase())]).as_deref(), Some(id));
        assert_eq!(read(&[("etc/machine-id", ""), ("var/lib/dbus/machine-id", id)]).as_deref(), Some(id));
        for meaningless in ["", "uninitialized\n", "00000000000000000000000000000000", "3d1219c7"] {
            assert_eq!(read(&[("etc/machine-id", meaningless)]), None, "{meaningless}");
        }
    }

    #[test]
    fn os_release_values_are_unquoted() {
        let text = "# comment\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME='Debian \\ GNU'\n\
                    VERSION_ID=12\nBUILD_ID=\nID=debian\nVERSION=\"a \\\"b\\\" \\\\c\"\n";
        let os = node(&[("etc/os-release", text), ("usr/lib/os-release", "NAME=other\n")]).os;
        assert_eq!(os.description.as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(os.name.as_deref(), Some("Debian \\ GNU"));
        assert_eq!(os.version.as_deref(), Some("12"));
        assert_eq!(os.build_id, None);
        assert_eq!(unquote("\"a \\\"b\\\" \\\\c\""), "a \"b\" \\c");
        assert_eq!(node(&[("usr/lib/os-release", "NAME=other\n")]).os.name.as_deref(), Some("other"));
    }

    #[test]
    fn the_kubernetes_name_comes_from_the_environment() {
        let read = |set: &str| {
            let environment = |name: &str| (name == set).then(|| "worker-1".to_owned());
            Node::read(Path::new("/nonexistent"), kernel(), &environment).kubernetes_name
        };
        assert_eq!(read("K8S_NODE_NAME").as_deref(), Some("worker-1"));
        assert_eq!(read("NODE_NAME").as_deref(), Some("worker-1"));
        assert_eq!(read("OTHER"), None);
    }

    #[test]
    fn this_machine_has_a_kernel() {
        let node = Node::detect(&|_| None);
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
        assert_eq!(node.kernel.release, release.trim());
    }
}
