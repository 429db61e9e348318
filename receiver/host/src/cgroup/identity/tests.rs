use std::fs;

use proptest::prelude::*;
use serde::Deserialize;

use super::{ContainerId, Identity, Origin, PodUid, Runtime, Subtree, by_path, identify, invariants, origin};
use crate::cgroup::{CgroupPath, Uid};

const FIXTURES: &str = concat!(env!("UNDERCURRENT_WORKSPACE"), "/receiver/fixtures/cgroups");

/// A source of example paths.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    source: String,
    hierarchy: Hierarchy,
    paths: Vec<Case>,
}

/// The cgroup version of the paths. The meaning of a path does not depend on it.
#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Hierarchy {
    V1,
    V2,
}

/// A path and its expected workload. Without a container, pod or unit, the workload is another cgroup; without a depth,
/// the node.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    path: String,
    container: Option<String>,
    runtime: Option<String>,
    pod: Option<String>,
    unit: Option<String>,
    depth: Option<usize>,
}

impl Case {
    fn path(&self) -> CgroupPath {
        CgroupPath::new(self.path.as_bytes())
    }

    /// Returns the expected workload in the format of [`described`].
    fn expected(&self) -> String {
        let Some(depth) = self.depth else { return "the node".to_owned() };
        let text = |what: &Option<String>| what.clone().unwrap_or_else(|| "-".to_owned());
        let what = match self {
            Self { container: Some(id), .. } => format!("container {id} {} {}", text(&self.runtime), text(&self.pod)),
            Self { pod: Some(uid), .. } => format!("pod {uid}"),
            Self { unit: Some(name), .. } => format!("unit {name}"),
            _ => "cgroup".to_owned(),
        };
        format!("{what} @{depth}")
    }
}

fn described(path: &CgroupPath) -> String {
    let Some((identity, depth)) = identify(path) else { return "the node".to_owned() };
    let what = match identity {
        Identity::Container { id: ContainerId(id), runtime, pod } => {
            let (runtime, pod) = (runtime.map_or("-", |runtime| runtime.as_str()), pod.map(|PodUid(uid)| uid));
            format!("container {id} {runtime} {}", pod.as_deref().unwrap_or("-"))
        }
        Identity::Pod(PodUid(uid)) => format!("pod {uid}"),
        Identity::Unit(name) => format!("unit {name}"),
        Identity::Cgroup => "cgroup".to_owned(),
    };
    format!("{what} @{depth}")
}

fn sources() -> Vec<Source> {
    let mut all = Vec::new();
    for file in fs::read_dir(FIXTURES).expect("fixtures") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("text");
        let sources: Vec<Source> =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!sources.is_empty(), "{}", path.display());
        all.extend(sources);
    }
    all
}

#[test]
fn every_known_path_has_its_workload() {
    let sources = sources();
    assert!(sources.iter().any(|source| source.hierarchy == Hierarchy::V1));
    assert!(sources.iter().any(|source| source.hierarchy == Hierarchy::V2));
    let mut wrong = String::new();
    for source in &sources {
        for case in &source.paths {
            let (expected, found) = (case.expected(), described(&case.path()));
            if found != expected {
                wrong.push_str(&format!(
                    "{}\n  is       {found}\n  expected {expected}\n  {}\n",
                    case.path, source.source
                ));
            }
            invariants::check(&case.path());
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn names_may_contain_any_bytes() {
    for path in [&b"/lxc/\xff"[..], b"/lxc.payload.\xff", b"/\xff/x", b"/docker/\xff\xfe", b"/kubepods/pod\xff"] {
        let path = CgroupPath::new(path);
        assert!(matches!(identify(&path), Some((Identity::Cgroup, _))), "{path}");
    }
    let id = "b43d92bf1e5c6f78bb9b7bc6f40721280299855ba692092716e3a1b6c0b86f3f";
    let below = CgroupPath::new(&[format!("/docker/{id}/").as_bytes(), b"\xff\n\x00x"].concat());
    assert_eq!(described(&below), format!("container {id} docker - @2"));
}

#[test]
fn long_paths_take_linear_time() {
    let deep = CgroupPath::new(
        "/docker/b43d92bf1e5c6f78bb9b7bc6f40721280299855ba692092716e3a1b6c0b86f3f".repeat(20_000).as_bytes(),
    );
    assert_eq!(identify(&deep).map(|(_, depth)| depth), Some(40_000));
    let long = CgroupPath::new(&[&b"/kubepods-pod"[..], &b"-pod".repeat(100_000)].concat());
    assert_eq!(identify(&long), Some((Identity::Cgroup, 1)));
}

/// Generates names from the known paths, and other names.
fn names() -> impl Strategy<Value = Vec<u8>> {
    let mut known: Vec<Vec<u8>> = sources()
        .iter()
        .flat_map(|source| &source.paths)
        .flat_map(|case| case.path().names().map(<[u8]>::to_vec).collect::<Vec<_>>())
        .collect();
    known.sort();
    known.dedup();
    let known = prop::sample::select(known);
    let other = prop::collection::vec(any::<u8>().prop_filter("a name's", |byte| !matches!(byte, 0 | b'/')), 1..12);
    let changed = (known.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut name, at, byte)| {
        let at = at.index(name.len());
        name[at] = byte;
        name
    });
    prop_oneof![6 => known, 1 => other, 1 => changed]
}

/// Generates names that identify neither a container nor a group directory.
fn plain() -> impl Strategy<Value = Vec<u8>> {
    "n[a-z0-9._-]{0,70}(\\.service|\\.scope|\\.slice)?".prop_map(String::into_bytes)
}

fn joined(names: &[Vec<u8>]) -> CgroupPath {
    CgroupPath::new(&names.join(&b'/'))
}

proptest! {
    #[test]
    fn the_invariants_hold_of_every_path(names in prop::collection::vec(names(), 0..9)) {
        invariants::check(&joined(&names));
    }

    #[test]
    fn cgroups_below_a_container_belong_to_the_container(
        names in prop::collection::vec(names(), 1..7),
        below in prop::collection::vec(plain(), 1..5),
    ) {
        let path = joined(&names);
        if let Some((Identity::Container { id, runtime, pod }, depth)) = identify(&path) {
            let below = [path.ancestor(depth).as_bytes().to_vec(), below.join(&b'/')].join(&b'/');
            let expected = Some((Identity::Container { id, runtime, pod }, depth));
            prop_assert_eq!(identify(&CgroupPath::new(&below)), expected);
        }
    }
}

const VICTIM: &str = "b43d92bf1e5c6f78bb9b7bc6f40721280299855ba692092716e3a1b6c0b86f3f";

#[test]
fn the_origin_of_a_path_is_the_party_that_named_it() {
    let container = format!("docker-{VICTIM}.scope");
    let pod = "kubepods.slice/kubepods-pod15513b48_e7a5_48fc_b9e3_92f713f36504.slice";
    for (parent, expected) in [
        ("/system.slice".to_owned(), Origin::System),
        (format!("/{pod}"), Origin::System),
        ("/docker".to_owned(), Origin::System),
        ("/system.slice/app.service".to_owned(), Origin::Delegated),
        ("/batch".to_owned(), Origin::Delegated),
        (format!("/docker/{VICTIM}"), Origin::Delegated),
        (format!("/docker/{VICTIM}/{pod}"), Origin::Delegated),
        ("/user.slice/user-1000.slice/user@1000.service".to_owned(), Origin::User(Uid(1000))),
        (format!("/user.slice/user-7.slice/libpod-{VICTIM}.scope"), Origin::User(Uid(7))),
    ] {
        let path = CgroupPath::new(format!("{parent}/{container}").as_bytes());
        assert_eq!(origin(&path), expected, "{path}");
    }
    assert_eq!(origin(&CgroupPath::root()), Origin::System);
}

#[test]
fn a_cgroup_belongs_to_the_subtree_of_its_creator() {
    let system = |name: &str| Subtree::System(name.as_bytes().to_vec());
    let container = format!("/docker/{VICTIM}");
    let rootless = format!("/user.slice/user-7.slice/user@7.service/docker-{VICTIM}.scope");
    let inside = || Subtree::Container(CgroupPath::new(container.as_bytes()));
    let pod = "/kubepods.slice/kubepods-pod15513b48_e7a5_48fc_b9e3_92f713f36504.slice";
    for (path, expected) in [
        ("/".to_owned(), system("")),
        ("/user.slice".to_owned(), system("user.slice")),
        ("/system.slice/app.service/a/b".to_owned(), system("system.slice")),
        ("/user.slice/user-7.slice".to_owned(), Subtree::User(Uid(7))),
        (format!("{rootless}/a"), Subtree::User(Uid(7))),
        (container.clone(), system("docker")),
        (format!("{container}/a"), inside()),
        (format!("{container}/user.slice/user-7.slice/a"), inside()),
        (format!("{container}/docker-{}.scope/a", VICTIM.replace('3', "4")), inside()),
        (format!("{pod}/cri-containerd-{VICTIM}.scope"), system("kubepods.slice")),
    ] {
        assert_eq!(Subtree::containing(&CgroupPath::new(path.as_bytes())), expected, "{path}");
    }
}

proptest! {
    /// Names in a user's subtree never match pods or containers of the host.
    #[test]
    fn names_in_a_user_s_subtree_never_match_the_system(uid in any::<u32>(), names in prop::collection::vec(names(), 1..6)) {
        let below = names.join(&b'/');
        let path = [format!("/user.slice/user-{uid}.slice/user@{uid}.service/").as_bytes(), &below].concat();
        let path = CgroupPath::new(&path);
        prop_assert_eq!(path.user(), Some(Uid(uid)));
        let (identity, depth) = identify(&path).expect("at least the manager");
        let own = path.ancestor(depth);
        prop_assert_eq!(identity.instance(&own), by_path(&own));
        let rootless = [Some(Runtime::Docker), Some(Runtime::Containerd), Some(Runtime::Podman)];
        match identity {
            Identity::Container { runtime, pod, .. } => prop_assert!(pod.is_none() && rootless.contains(&runtime)),
            other => prop_assert!(matches!(other, Identity::Unit(_)), "{:?}", other),
        }
    }
}
