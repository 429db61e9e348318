//! Where runtimes listen.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::endpoint::{Endpoint, Owner, Refusal};
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Places {
    /// There and nowhere else.
    Named(Vec<PathBuf>),
    /// The usual places below these folders, and one that the environment names.
    Usual {
        /// The folders.
        roots: Vec<PathBuf>,
        /// The socket that `DOCKER_HOST` names.
        docker_host: Option<PathBuf>,
    },
}

/// The outcome of a search for sockets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Look {
    /// Every socket that exists and has the required owner.
    pub endpoints: Vec<Endpoint>,
    /// Sockets that should be there, each with the reason for leaving it out.
    pub unusable: Vec<(PathBuf, String)>,
}

impl Places {
    /// What the settings name, or else the usual places on the host, where a container may see it, and here.
    pub fn new(named: Option<Vec<PathBuf>>, environment: Environment<'_>, host: &Path) -> Self {
        let here = PathBuf::from("/");
        let docker_host = || Some(PathBuf::from(value(environment, "DOCKER_HOST")?.strip_prefix("unix://")?));
        named
            .map_or_else(|| Self::Usual { roots: vec![here, host.to_owned()], docker_host: docker_host() }, Self::Named)
    }

    /// Looks for sockets. A socket with several paths is returned once. Blocks.
    #[must_use]
    pub fn look(&self) -> Look {
        let (mut look, mut seen) = (Look::default(), HashSet::new());
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

    /// Returns whether the log must name a failure: any failure of a named socket, and the refusal of a usual socket of the
    /// system. Users must not be able to fill the log.
    fn expects(&self, endpoint: &Endpoint, error: &io::Error) -> bool {
        let refused = error.get_ref().is_some_and(|cause| cause.is::<Refusal>());
        matches!(self, Self::Named(_)) || refused && endpoint.owner == Owner::Root
    }

    fn candidates(&self) -> Vec<Endpoint> {
        match self {
            Self::Named(paths) => paths.iter().cloned().map(Endpoint::named).collect(),
            Self::Usual { roots, docker_host } => {
                let named = docker_host.iter().cloned().map(Endpoint::named);
                named.chain(roots.iter().flat_map(|root| usual(root))).collect()
            }
        }
    }
}

fn usual(root: &Path) -> impl Iterator<Item = Endpoint> {
    let users = fs::read_dir(root.join(USERS)).into_iter().flatten().flatten().take(USERS_LIMIT);
    let of_users = users.flat_map(|user| USER.map(|socket| user.path().join(socket)));
    SYSTEM.map(|socket| root.join(socket)).into_iter().chain(of_users).map(Endpoint::usual)
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
    fn the_usual_places_are_looked_through_each_socket_once() {
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
            Places::Usual { roots: vec![root.path().to_owned(), root.path().join("run/..")], docker_host: None };
        // Those of the usual places must be root's.
        let expected = if user == 0 { &there[..] } else { &there[2..] };
        assert_eq!(paths(places.look().endpoints), expected.iter().map(|path| at(path)).collect::<Vec<_>>());
        drop(listeners);
    }

    #[test]
    fn the_environment_may_name_one_and_the_settings_may_name_all() {
        let docker = |value: &'static str| move |name: &str| (name == "DOCKER_HOST").then(|| value.to_owned());
        let first = |places: &Places| places.candidates().first().map(|endpoint| endpoint.path.clone());
        let usual = Places::new(None, &docker("unix:///tmp/docker.sock"), Path::new("/host"));
        assert_eq!(first(&usual), Some("/tmp/docker.sock".into()));
        assert!(usual.candidates().contains(&Endpoint { path: "/host/run/docker.sock".into(), owner: Owner::Root }));
        assert_eq!(usual.candidates()[0].owner, Owner::Any);
        assert!(
            first(&Places::new(None, &docker("tcp://h:1"), Path::new("/")))
                .is_some_and(|path| path.starts_with("/run"))
        );
        let named = Places::new(Some(vec!["/a".into()]), &docker("unix:///b"), Path::new("/"));
        assert_eq!(paths(named.candidates()), ["/a"].map(PathBuf::from));
        assert!(Places::new(Some(Vec::new()), &docker("unix:///b"), Path::new("/")).candidates().is_empty());
    }
}
