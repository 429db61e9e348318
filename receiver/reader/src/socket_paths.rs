//! Paths of the sockets of container runtimes.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::endpoint::{Endpoint, Owner, Refusal};
use crate::environment::{Environment, value};

/// The default socket paths of the runtimes' packages, relative to the root.
const SYSTEM: [&str; 7] = [
    "run/containerd/containerd.sock",
    "run/k3s/containerd/containerd.sock",
    "run/crio/crio.sock",
    "run/cri-dockerd.sock",
    "run/docker.sock",
    "var/run/docker.sock",
    "run/podman/podman.sock",
];
/// The folder with one runtime directory for each user.
const USERS: &str = "run/user";
const USER: [&str; 2] = ["podman/podman.sock", "docker.sock"];
/// The maximum number of users in a search for sockets.
const USERS_LIMIT: usize = 64;

/// The paths to search.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SocketPaths {
    /// Only these paths.
    Named(Vec<PathBuf>),
    /// The default paths below these folders, and the path in the environment.
    Usual {
        /// The folders.
        roots: Vec<PathBuf>,
        /// The socket that `DOCKER_HOST` names.
        docker_host: Option<PathBuf>,
    },
}

/// The outcome of a search for sockets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FoundSockets {
    /// Every existing socket with the required owner.
    pub endpoints: Vec<Endpoint>,
    /// Rejected sockets, each with the reason.
    pub unusable: Vec<(PathBuf, String)>,
}

impl Default for SocketPaths {
    /// No paths.
    fn default() -> Self {
        Self::Named(Vec::new())
    }
}

impl SocketPaths {
    /// Returns the paths of the configuration. Without these, returns the default paths on the host, which a container
    /// may see below `host`, and in this file system.
    pub fn new(named: Option<Vec<PathBuf>>, environment: Environment<'_>, host: &Path) -> Self {
        let here = PathBuf::from("/");
        let docker_host = || Some(PathBuf::from(value(environment, "DOCKER_HOST")?.strip_prefix("unix://")?));
        named
            .map_or_else(|| Self::Usual { roots: vec![here, host.to_owned()], docker_host: docker_host() }, Self::Named)
    }

    /// Returns the socket with a path that is searched.
    #[must_use]
    pub fn endpoint(&self, path: &Path) -> Option<Endpoint> {
        self.candidates().into_iter().find(|endpoint| endpoint.path == path)
    }

    /// Searches for sockets. Returns a socket with several paths once. Blocks.
    #[must_use]
    pub fn look(&self) -> FoundSockets {
        let (mut look, mut seen) = (FoundSockets::default(), HashSet::new());
        for endpoint in self.candidates() {
            match endpoint.identity() {
                Ok(identity) => {
                    if seen.insert(identity) {
                        look.endpoints.push(endpoint);
                    }
                }
                Err(error) if self.expects(&endpoint, &error) => {
                    look.unusable.push((endpoint.path, error.to_string()));
                }
                Err(error) => tracing::debug!("{} is left out: {error}", endpoint.path.display()),
            }
        }
        look
    }

    /// Returns true if the log must report a failure: any failure of a configured socket, and the rejection of a
    /// default socket of the system. Failures of user sockets are not reported, so that users cannot fill the log.
    fn expects(&self, endpoint: &Endpoint, error: &io::Error) -> bool {
        let refused = error.get_ref().is_some_and(|cause| cause.is::<Refusal>());
        matches!(self, Self::Named(_)) || refused && endpoint.owner == Owner::Root
    }

    fn candidates(&self) -> Vec<Endpoint> {
        match self {
            Self::Named(paths) => paths.iter().cloned().map(Endpoint::named).collect(),
            Self::Usual { roots, docker_host } => {
                let named = docker_host.iter().cloned().map(Endpoint::named);
                let of_system = roots.iter().flat_map(|root| SYSTEM.map(|socket| Endpoint::usual(root.join(socket))));
                // Last, because users choose what is there.
                let of_users = roots.iter().flat_map(|root| of_users(root));
                named.chain(of_system).chain(of_users).collect()
            }
        }
    }
}

fn of_users(root: &Path) -> impl Iterator<Item = Endpoint> {
    let users = fs::read_dir(root.join(USERS)).into_iter().flatten().flatten().take(USERS_LIMIT);
    users.flat_map(|user| USER.map(|socket| Endpoint::usual(user.path().join(socket))))
}

#[cfg(test)]
mod tests {
    use std::os::unix::{
        fs::{MetadataExt, symlink},
        net::UnixListener,
    };

    use super::*;

    fn paths(endpoints: Vec<Endpoint>) -> Vec<PathBuf> {
        endpoints.into_iter().map(|endpoint| endpoint.path).collect()
    }

    #[test]
    fn a_search_returns_each_socket_at_the_default_paths_once() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(path);
        // Files of the test belong to the user of this process.
        let user = fs::metadata(root.path()).expect("a folder").uid();
        let of_user = format!("run/user/{user}/podman");
        for folder in ["run/podman", &of_user, "run/containerd", "var"] {
            fs::create_dir_all(at(folder)).expect("created");
        }
        symlink("../run", at("var/run")).expect("linked");
        fs::write(at("run/containerd/containerd.sock"), "no socket").expect("written");
        let there = ["run/docker.sock", "run/podman/podman.sock", &format!("{of_user}/podman.sock")];
        let listeners = there.map(|path| UnixListener::bind(at(path)).expect("bound"));
        let places =
            SocketPaths::Usual { roots: vec![root.path().to_owned(), root.path().join("run/..")], docker_host: None };
        // Sockets at the default paths must belong to root.
        let expected = if user == 0 { &there[..] } else { &there[2..] };
        assert_eq!(paths(places.look().endpoints), expected.iter().map(|path| at(path)).collect::<Vec<_>>());
        drop(listeners);
    }

    #[test]
    fn the_environment_adds_a_path_and_the_configuration_replaces_all() {
        let docker = |value: &'static str| move |name: &str| (name == "DOCKER_HOST").then(|| value.to_owned());
        let first = |places: &SocketPaths| places.candidates().first().map(|endpoint| endpoint.path.clone());
        let usual = SocketPaths::new(None, &docker("unix:///tmp/docker.sock"), Path::new("/host"));
        assert_eq!(first(&usual), Some("/tmp/docker.sock".into()));
        assert!(usual.candidates().contains(&Endpoint { path: "/host/run/docker.sock".into(), owner: Owner::Root }));
        assert_eq!(usual.candidates()[0].owner, Owner::Any);
        assert!(
            first(&SocketPaths::new(None, &docker("tcp://h:1"), Path::new("/")))
                .is_some_and(|path| path.starts_with("/run"))
        );
        let named = SocketPaths::new(Some(vec!["/a".into()]), &docker("unix:///b"), Path::new("/"));
        assert_eq!(paths(named.candidates()), ["/a"].map(PathBuf::from));
        assert!(SocketPaths::new(Some(Vec::new()), &docker("unix:///b"), Path::new("/")).candidates().is_empty());
    }
}
