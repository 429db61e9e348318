//! Where runtimes listen.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use crate::environment::{Environment, value};

/// Where the runtimes' own packages put their sockets, below the root.
const SYSTEM: [&str; 7] = [
    "run/containerd/containerd.sock",
    "run/k3s/containerd/containerd.sock",
    "run/crio/crio.sock",
    "run/cri-dockerd.sock",
    "run/docker.sock",
    "var/run/docker.sock",
    "run/podman/podman.sock",
];
/// Where those of users without privileges stand, a folder for each user, and what is in it.
const USERS: &str = "run/user";
const USER: [&str; 2] = ["podman/podman.sock", "docker.sock"];
/// The most users whose sockets are looked for.
const USERS_LIMIT: usize = 64;

/// Where to look.
#[derive(Clone, Debug)]
pub(super) enum Places {
    /// There and nowhere else.
    Named(Vec<PathBuf>),
    /// The usual places below these folders, and one that the environment names.
    Usual { roots: Vec<PathBuf>, docker_host: Option<PathBuf> },
}

impl Places {
    /// What the settings name, or else the usual places on the host, where a container may see it, and here.
    pub(super) fn new(named: Option<Vec<PathBuf>>, environment: Environment<'_>, host: &Path) -> Self {
        let here = PathBuf::from("/");
        let docker_host = || Some(PathBuf::from(value(environment, "DOCKER_HOST")?.strip_prefix("unix://")?));
        named
            .map_or_else(|| Self::Usual { roots: vec![here, host.to_owned()], docker_host: docker_host() }, Self::Named)
    }

    /// Every socket that is there, each once whatever the paths to it.
    pub(super) fn look(&self) -> Vec<PathBuf> {
        let mut seen = HashSet::new();
        let mut sockets = self.candidates();
        sockets.retain(|path| {
            let socket = fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_socket());
            socket.is_some_and(|metadata| seen.insert((metadata.dev(), metadata.ino())))
        });
        sockets
    }

    fn candidates(&self) -> Vec<PathBuf> {
        match self {
            Self::Named(paths) => paths.clone(),
            Self::Usual { roots, docker_host } => {
                docker_host.iter().cloned().chain(roots.iter().flat_map(|root| usual(root))).collect()
            }
        }
    }

    /// Whether somebody asked for these very sockets.
    pub(super) fn named(&self) -> &[PathBuf] {
        match self {
            Self::Named(paths) => paths,
            Self::Usual { .. } => &[],
        }
    }
}

fn usual(root: &Path) -> impl Iterator<Item = PathBuf> {
    let users = fs::read_dir(root.join(USERS)).into_iter().flatten().flatten().take(USERS_LIMIT);
    let of_users = users.flat_map(|user| USER.map(|socket| user.path().join(socket)));
    SYSTEM.map(|socket| root.join(socket)).into_iter().chain(of_users)
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    #[test]
    fn the_usual_places_are_looked_through_each_socket_once() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(path);
        for folder in ["run/podman", "run/user/1000/podman", "run/containerd", "var"] {
            fs::create_dir_all(at(folder)).expect("created");
        }
        symlink("../run", at("var/run")).expect("linked");
        fs::write(at("run/containerd/containerd.sock"), "no socket").expect("written");
        let there = ["run/docker.sock", "run/podman/podman.sock", "run/user/1000/podman/podman.sock"];
        let listeners = there.map(|path| UnixListener::bind(at(path)).expect("bound"));
        let places =
            Places::Usual { roots: vec![root.path().to_owned(), root.path().join("run/..")], docker_host: None };
        assert_eq!(places.look(), there.map(at));
        drop(listeners);
    }

    #[test]
    fn the_environment_may_name_one_and_the_settings_may_name_all() {
        let docker = |value: &'static str| move |name: &str| (name == "DOCKER_HOST").then(|| value.to_owned());
        let first = |places: &Places| places.candidates().first().cloned();
        let usual = Places::new(None, &docker("unix:///tmp/docker.sock"), Path::new("/host"));
        assert_eq!(first(&usual), Some("/tmp/docker.sock".into()));
        assert!(usual.candidates().contains(&"/host/run/docker.sock".into()));
        assert!(
            first(&Places::new(None, &docker("tcp://h:1"), Path::new("/")))
                .is_some_and(|path| path.starts_with("/run"))
        );
        let named = Places::new(Some(vec!["/a".into()]), &docker("unix:///b"), Path::new("/"));
        assert_eq!(named.candidates(), ["/a"].map(PathBuf::from));
        assert!(Places::new(Some(Vec::new()), &docker("unix:///b"), Path::new("/")).candidates().is_empty());
    }
}
